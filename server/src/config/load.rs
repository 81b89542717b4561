//! From file, environment and flags to one [`Config`], remembering where each value came from.

use std::{collections::BTreeMap, fmt, fs, io, path::Path};

use super::{Config, KEYS};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The file.
    File(String),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// Where every value came from, by key.
pub type Origins = BTreeMap<&'static str, Origin>;

/// What there is to read.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file, if one was named.
    pub file: Option<(String, String)>,
    /// The environment: names and values.
    pub environment: Vec<(String, String)>,
    /// Keys and values that flags gave.
    pub flags: Vec<(&'static str, String)>,
}

impl Sources {
    /// Reads the named file and this process's environment.
    pub fn of_process(file: Option<&Path>, flags: Vec<(&'static str, String)>) -> io::Result<Self> {
        let file = match file {
            Some(path) => Some((path.display().to_string(), fs::read_to_string(path)?)),
            None => None,
        };
        let text = |value: std::ffi::OsString| value.into_string().ok();
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
        Ok(Self { file, environment, flags })
    }
}

/// The settings that hold, and their origins; or everything that is wrong with them.
pub fn load(sources: &Sources) -> Result<(Config, Origins), Vec<String>> {
    let mut config = Config::default();
    let mut origins: Origins = KEYS.iter().map(|key| (key.name, Origin::Default)).collect();
    let mut problems = Vec::new();
    let mut set = |name: &str, text: &str, origin: Origin, problems: &mut Vec<String>| {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            problems.push(format!("{origin}: unknown key \"{name}\"{}", nearest(name)));
            return;
        };
        match (key.set)(&mut config, text) {
            Ok(()) => drop(origins.insert(key.name, origin)),
            Err(problem) => problems.push(format!("{origin}: {name}: {problem}")),
        }
    };
    if let Some((path, text)) = &sources.file {
        match text.parse::<toml::Table>() {
            Ok(table) => {
                for (name, value) in flatten(&table) {
                    match value {
                        Ok(value) => set(&name, &value, Origin::File(path.clone()), &mut problems),
                        Err(problem) => problems.push(format!("file {path}: {name}: {problem}")),
                    }
                }
            }
            Err(error) => problems.push(format!("file {path}: {}", error.message())),
        }
    }
    for (name, value) in &sources.environment {
        if let Some(key) = key_of_environment(name) {
            set(&key, value, Origin::Environment(name.clone()), &mut problems);
        }
    }
    for (name, value) in &sources.flags {
        set(name, value, Origin::Flag, &mut problems);
    }
    if problems.is_empty() { Ok((config, origins)) } else { Err(problems) }
}

/// The settings as a TOML file, each with its origin.
pub fn print(config: &Config, origins: &Origins) -> String {
    let mut lines = Vec::new();
    let mut section = "";
    for key in KEYS {
        let (group, name) = key.name.split_once('.').unwrap_or(("", key.name));
        if group != section {
            lines.push(format!("\n[{group}]"));
            section = group;
        }
        let value = (key.get)(config);
        let is_bare = value.parse::<i64>().is_ok() || value == "true" || value == "false";
        let shown = if is_bare { value } else { quoted(&value) };
        let unset = if shown == "\"\"" { "# " } else { "" };
        lines.push(format!("{unset}{name} = {shown}  # {}; {}", origins[key.name], key.help));
    }
    lines.join("\n") + "\n"
}

/// `KEYSTEAD_SQL_LISTEN` → `sql.listen`. A name of a known section is a key, known or not; other names that begin so
/// (`KEYSTEAD_PASSWORD`) are not settings.
fn key_of_environment(name: &str) -> Option<String> {
    let rest = name.strip_prefix("KEYSTEAD_")?.to_lowercase();
    if rest == "data" {
        return Some(rest);
    }
    let (section, key) = rest.split_once('_')?;
    let is_section =
        KEYS.iter().any(|key| key.name.split_once('.').is_some_and(|(group, _)| group == section));
    is_section.then(|| format!("{section}.{key}"))
}

type Flat = Vec<(String, Result<String, String>)>;

fn flatten(table: &toml::Table) -> Flat {
    let mut flat = Vec::new();
    for (name, value) in table {
        match value {
            toml::Value::Table(inner) => {
                flat.extend(inner.iter().map(|(key, value)| (format!("{name}.{key}"), scalar(value))));
            }
            other => flat.push((name.clone(), scalar(other))),
        }
    }
    flat
}

fn scalar(value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(on) => Ok(on.to_string()),
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => {
            Err("must be a text, a whole number or true/false".to_owned())
        }
    }
}

/// A basic TOML string.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

fn nearest(name: &str) -> String {
    let common = |key: &str| key.chars().rev().zip(name.chars().rev()).take_while(|(a, b)| a == b).count();
    let best = KEYS.iter().max_by_key(|key| common(key.name)).filter(|key| common(key.name) >= 4);
    best.map(|key| format!(" (is it \"{}\"?)", key.name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(file: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Sources {
        Sources {
            file: Some(("k.toml".to_owned(), file.to_owned())),
            environment: environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            flags: flags.iter().map(|(n, v)| (*n, (*v).to_owned())).collect(),
        }
    }

    #[test]
    fn later_sources_win_and_their_origin_is_remembered() {
        let file = "[sql]\nlisten = \"127.0.0.1:1\"\nconnections_max = 10\n[log]\nfilter = \"warn\"";
        let environment = [("KEYSTEAD_SQL_LISTEN", "127.0.0.1:2"), ("KEYSTEAD_LOG_FILTER", "debug")];
        let (config, origins) =
            load(&sources(file, &environment, &[("sql.listen", "127.0.0.1:3")])).expect("all is known");
        assert_eq!(config.sql.listen.port(), 3);
        assert_eq!(config.log.filter, "debug");
        assert_eq!(config.sql.connections_max, 10);
        assert_eq!(origins["sql.listen"], Origin::Flag);
        assert_eq!(origins["log.filter"], Origin::Environment("KEYSTEAD_LOG_FILTER".to_owned()));
        assert_eq!(origins["sql.connections_max"], Origin::File("k.toml".to_owned()));
        assert_eq!(origins["http.listen"], Origin::Default);
    }

    #[test]
    fn unknown_keys_are_errors_whichever_way_they_come() {
        let problems = load(&sources("[sql]\nlisen = \"x\"\n", &[("KEYSTEAD_SQL_NOPE", "1")], &[]))
            .expect_err("neither key exists");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(load(&sources("", &[("KEYSTEAD_PASSWORD", "secret")], &[])).is_ok());
        assert!(load(&sources("data = \n", &[], &[])).is_err());
        assert!(load(&sources("[memory]\nlimit = 1.5\n", &[], &[])).is_err());
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        let (config, origins) =
            load(&sources("[memory]\nlimit = \"1GiB\"\n[tls]\ncert=\"a\"\nkey=\"b\"", &[], &[]))
                .expect("known keys");
        let printed = print(&config, &origins);
        let (again, _) = load(&sources(&printed, &[], &[])).expect("our own text");
        assert_eq!(again, config);
        assert!(printed.contains("limit = \"1GiB\"  # file k.toml"), "{printed}");
    }
}
