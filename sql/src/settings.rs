//! A session's parameters: `SET`, `SHOW`, `RESET`, `current_setting`, what the wire reports.
//!
//! Invariants:
//! - Every parameter has one row in [`KNOWN`]; a value is checked when it is set and kept as PostgreSQL shows it.
//! - `SET` inside a transaction is undone by its rollback, `SET LOCAL` by its end; savepoints likewise.
//! - Names with a dot that are not ours are placeholders, as in PostgreSQL: any text, kept for the session.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use model::{
    Code, Error, Result,
    value::{self, DateOrder, Zone},
};
use parking_lot::Mutex;

use crate::context::{self, Activity, Setting};

/// How values of a parameter look.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Bool,
    Integer(i64, i64),
    /// Milliseconds unless a unit is written.
    Millis,
    Choice(&'static [&'static str]),
    Zone,
    DateStyle,
    Encoding,
    List,
    /// A command id, or nothing.
    CommandId,
    /// Only shown.
    Fixed,
}

struct Parameter {
    name: &'static str,
    value: &'static str,
    shape: Shape,
    /// Sent to the client when it changes.
    reported: bool,
    description: &'static str,
}

const fn parameter(
    name: &'static str,
    value: &'static str,
    shape: Shape,
    description: &'static str,
) -> Parameter {
    Parameter { name, value, shape, reported: false, description }
}

const fn reported(
    name: &'static str,
    value: &'static str,
    shape: Shape,
    description: &'static str,
) -> Parameter {
    Parameter { name, value, shape, reported: true, description }
}

const ISOLATION: &[&str] = &["read uncommitted", "read committed", "repeatable read", "serializable"];
const LEVELS: &[&str] =
    &["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"];

/// All parameters, by name.
static KNOWN: &[Parameter] = &[
    reported(
        "application_name",
        "",
        Shape::Text,
        "Sets the application name to be reported in statistics and logs.",
    ),
    parameter(
        "backslash_quote",
        "safe_encoding",
        Shape::Choice(&["safe_encoding", "on", "off"]),
        "Sets whether \"\\'\" is allowed in string literals.",
    ),
    parameter("bytea_output", "hex", Shape::Choice(&["hex", "escape"]), "Sets the output format for bytea."),
    parameter(
        "check_function_bodies",
        "on",
        Shape::Bool,
        "Check routine bodies during CREATE FUNCTION and CREATE PROCEDURE.",
    ),
    reported("client_encoding", "UTF8", Shape::Encoding, "Sets the client's character set encoding."),
    parameter(
        "client_min_messages",
        "notice",
        Shape::Choice(LEVELS),
        "Sets the message levels that are sent to the client.",
    ),
    reported("DateStyle", "ISO, MDY", Shape::DateStyle, "Sets the display format for date and time values."),
    parameter(
        "default_tablespace",
        "",
        Shape::Text,
        "Sets the default tablespace to create tables and indexes in.",
    ),
    parameter(
        "default_table_access_method",
        "heap",
        Shape::Text,
        "Sets the default table access method for new tables.",
    ),
    parameter(
        "default_transaction_deferrable",
        "off",
        Shape::Bool,
        "Sets the default deferrable status of new transactions.",
    ),
    parameter(
        "default_transaction_isolation",
        "read committed",
        Shape::Choice(ISOLATION),
        "Sets the transaction isolation level of each new transaction.",
    ),
    reported(
        "default_transaction_read_only",
        "off",
        Shape::Bool,
        "Sets the default read-only status of new transactions.",
    ),
    parameter(
        "extra_float_digits",
        "1",
        Shape::Integer(-15, 3),
        "Sets the number of digits displayed for floating-point values.",
    ),
    parameter(
        "idle_in_transaction_session_timeout",
        "0",
        Shape::Millis,
        "Sets the maximum allowed idle time between queries, when in a transaction.",
    ),
    parameter(
        "idle_session_timeout",
        "0",
        Shape::Millis,
        "Sets the maximum allowed idle time between queries, when not in a transaction.",
    ),
    reported("in_hot_standby", "off", Shape::Fixed, "Shows whether hot standby is currently active."),
    reported("integer_datetimes", "on", Shape::Fixed, "Datetimes are integer based."),
    reported(
        "IntervalStyle",
        "postgres",
        Shape::Choice(&["postgres"]),
        "Sets the display format for interval values.",
    ),
    reported("is_superuser", "off", Shape::Fixed, "Shows whether the current user is a superuser."),
    parameter("jit", "off", Shape::Bool, "Allow JIT compilation."),
    parameter(
        "keystead.command_id",
        "",
        Shape::CommandId,
        "Names the next write, so that it is safe to send again.",
    ),
    parameter(
        "keystead.multi_partition",
        "off",
        Shape::Choice(&["off", "each"]),
        "Whether one statement may change several partitions, one command each.",
    ),
    parameter("lc_collate", "C", Shape::Fixed, "Shows the collation order locale."),
    parameter(
        "lc_ctype",
        "C",
        Shape::Fixed,
        "Shows the character classification and case conversion locale.",
    ),
    parameter("lc_messages", "C", Shape::Text, "Sets the language in which messages are displayed."),
    parameter("lc_monetary", "C", Shape::Text, "Sets the locale for formatting monetary amounts."),
    parameter("lc_numeric", "C", Shape::Text, "Sets the locale for formatting numbers."),
    parameter("lc_time", "C", Shape::Text, "Sets the locale for formatting date and time values."),
    parameter(
        "lock_timeout",
        "0",
        Shape::Millis,
        "Sets the maximum allowed duration of any wait for a lock.",
    ),
    parameter("max_identifier_length", "63", Shape::Fixed, "Shows the maximum identifier length."),
    parameter("max_index_keys", "32", Shape::Fixed, "Shows the maximum number of index keys."),
    parameter("role", "none", Shape::Text, "Sets the current role."),
    parameter("row_security", "on", Shape::Bool, "Enable row security."),
    reported(
        "search_path",
        "\"$user\", public",
        Shape::List,
        "Sets the schema search order for names that are not schema-qualified.",
    ),
    reported("server_encoding", "UTF8", Shape::Fixed, "Shows the server (database) character set encoding."),
    reported("server_version", "15.18", Shape::Fixed, "Shows the server version."),
    parameter("server_version_num", "150018", Shape::Fixed, "Shows the server version as an integer."),
    reported("session_authorization", "", Shape::Text, "Sets the session user name."),
    reported(
        "standard_conforming_strings",
        "on",
        Shape::Choice(&["on"]),
        "Causes '...' strings to treat backslashes literally.",
    ),
    parameter("statement_timeout", "0", Shape::Millis, "Sets the maximum allowed duration of any statement."),
    parameter(
        "synchronous_commit",
        "on",
        Shape::Choice(&["on", "off", "local", "remote_write", "remote_apply"]),
        "Commits are always synchronous here.",
    ),
    parameter("synchronize_seqscans", "on", Shape::Bool, "Enable synchronized sequential scans."),
    reported(
        "TimeZone",
        "UTC",
        Shape::Zone,
        "Sets the time zone for displaying and interpreting time stamps.",
    ),
    parameter(
        "transaction_deferrable",
        "off",
        Shape::Bool,
        "Whether to defer a read-only serializable transaction.",
    ),
    parameter(
        "transaction_isolation",
        "read committed",
        Shape::Choice(ISOLATION),
        "Sets the current transaction's isolation level.",
    ),
    parameter(
        "transaction_read_only",
        "off",
        Shape::Bool,
        "Sets the current transaction's read-only status.",
    ),
    parameter("work_mem", "4MB", Shape::Text, "Sets the maximum memory to be used for query workspaces."),
    parameter(
        "xmloption",
        "content",
        Shape::Choice(&["content", "document"]),
        "Sets whether XML data is to be considered documents or content fragments.",
    ),
];

fn find(name: &str) -> Option<&'static Parameter> {
    KNOWN.iter().find(|parameter| parameter.name.eq_ignore_ascii_case(name))
}

/// How a parameter's name is spelt.
pub(crate) fn spelling(name: &str) -> String {
    find(name).map_or_else(|| name.to_lowercase(), |parameter| parameter.name.to_owned())
}

/// A session's parameters. Clones share them.
#[derive(Clone)]
pub(crate) struct Settings(Arc<Mutex<State>>);

struct State {
    values: BTreeMap<String, String>,
    derived: Derived,
    reset: BTreeMap<String, String>,
    undo: Vec<(String, Option<String>, bool)>,
    in_transaction: bool,
    generation: u64,
    changed: Vec<&'static str>,
    activity: Arc<dyn Fn() -> Vec<Activity> + Send + Sync>,
}

/// What every statement asks for, worked out when a parameter changes.
#[derive(Clone)]
struct Derived {
    limits: Limits,
    text: value::Context,
}

/// Values that every statement asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// `statement_timeout`; none for no limit, as in the others.
    pub(crate) statement: Option<Duration>,
    /// `lock_timeout`.
    pub(crate) lock: Option<Duration>,
    /// `idle_session_timeout`.
    pub(crate) idle: Option<Duration>,
    /// `idle_in_transaction_session_timeout`.
    pub(crate) idle_in_transaction: Option<Duration>,
    /// Whether `keystead.multi_partition` is `each`.
    pub(crate) many_partitions: bool,
    /// `default_transaction_read_only`.
    pub(crate) read_only: bool,
    /// `default_transaction_isolation` says so.
    pub(crate) is_read_committed: bool,
    /// `keystead.command_id` names the next command.
    pub(crate) is_named: bool,
}

impl Settings {
    /// With the values of the startup message.
    pub(crate) fn new(
        startup: &[(String, String)],
        activity: Arc<dyn Fn() -> Vec<Activity> + Send + Sync>,
    ) -> Result<Self> {
        let state = State {
            derived: Derived::of(&BTreeMap::new()),
            values: BTreeMap::new(),
            reset: BTreeMap::new(),
            undo: Vec::new(),
            in_transaction: false,
            generation: 0,
            changed: Vec::new(),
            activity,
        };
        let settings = Self(Arc::new(Mutex::new(state)));
        for (name, value) in startup {
            settings.assign(name, value, false)?;
        }
        {
            let mut state = settings.0.lock();
            state.reset = state.values.clone();
            state.changed.clear();
        }
        Ok(settings)
    }

    /// `SET`, checked.
    pub(crate) fn assign(&self, name: &str, value: &str, local: bool) -> Result<String> {
        let (key, value) = match find(name) {
            Some(parameter) => (parameter.name.to_owned(), check(parameter, value)?),
            None if name.contains('.') && !name.starts_with("keystead.") => {
                (name.to_lowercase(), value.to_owned())
            }
            None => return Err(unrecognized(name)),
        };
        self.0.lock().put(key, Some(value.clone()), local);
        Ok(value)
    }

    /// What is only decided by the session itself, such as `is_superuser`.
    pub(crate) fn force(&self, name: &'static str, value: &str) {
        self.0.lock().put(name.to_owned(), Some(value.to_owned()), false);
    }

    /// `RESET`, `SET … TO DEFAULT`.
    pub(crate) fn reset(&self, name: &str, local: bool) -> Result<()> {
        let key = match find(name) {
            Some(parameter) if matches!(parameter.shape, Shape::Fixed) => return Err(fixed(parameter.name)),
            Some(parameter) => parameter.name.to_owned(),
            None if name.contains('.') => name.to_lowercase(),
            None => return Err(unrecognized(name)),
        };
        let mut state = self.0.lock();
        let value = state.reset_value(&key);
        state.put(key, value, local);
        Ok(())
    }

    /// `RESET ALL`.
    pub(crate) fn reset_all(&self) {
        let keys: Vec<String> = self.0.lock().values.keys().cloned().collect();
        for key in keys {
            let keeps = matches!(
                key.as_str(),
                "session_authorization"
                    | "role"
                    | "is_superuser"
                    | "transaction_isolation"
                    | "transaction_read_only"
            );
            if !keeps {
                let mut state = self.0.lock();
                let value = state.reset_value(&key);
                state.put(key, value, false);
            }
        }
    }

    /// The value of a parameter that exists.
    pub(crate) fn get(&self, name: &str) -> String {
        self.find(name).unwrap_or_default()
    }

    /// `SHOW name`.
    pub(crate) fn find(&self, name: &str) -> Option<String> {
        let state = self.0.lock();
        match find(name) {
            Some(parameter) => Some(shown(parameter, state.values.get(parameter.name))),
            None => state.values.get(&name.to_lowercase()).cloned(),
        }
    }

    /// What every statement asks for.
    pub(crate) fn limits(&self) -> Limits {
        self.0.lock().derived.limits
    }

    /// Counts changes, so that what is derived from settings knows when to be derived again.
    pub(crate) fn generation(&self) -> u64 {
        self.0.lock().generation
    }

    /// A transaction begins: from now on changes can be undone.
    pub(crate) fn begin(&self) {
        let mut state = self.0.lock();
        state.in_transaction = true;
        state.undo.clear();
    }

    /// A place to roll back to.
    pub(crate) fn mark(&self) -> usize {
        self.0.lock().undo.len()
    }

    /// Undoes what was set after a place.
    pub(crate) fn roll_back(&self, to: usize) {
        let mut state = self.0.lock();
        while state.undo.len() > to {
            if let Some((name, value, _)) = state.undo.pop() {
                state.restore(name, value);
            }
        }
    }

    /// The transaction ends: all changes of a failed one are undone, local ones in any case.
    pub(crate) fn end(&self, committed: bool) {
        let mut state = self.0.lock();
        let undo = std::mem::take(&mut state.undo);
        state.in_transaction = false;
        for (name, value, local) in undo.into_iter().rev() {
            if !committed || local {
                state.restore(name, value);
            }
        }
    }

    /// Parameters to report to the client since the last call.
    pub(crate) fn drain_changed(&self) -> Vec<(&'static str, String)> {
        let mut state = self.0.lock();
        let changed = std::mem::take(&mut state.changed);
        changed
            .into_iter()
            .filter_map(find)
            .map(|parameter| (parameter.name, shown(parameter, state.values.get(parameter.name))))
            .collect()
    }

    /// All parameters that are reported, for the start of the connection.
    pub(crate) fn reported(&self) -> Vec<(&'static str, String)> {
        let state = self.0.lock();
        let all = KNOWN.iter().filter(|parameter| parameter.reported);
        all.map(|parameter| (parameter.name, shown(parameter, state.values.get(parameter.name)))).collect()
    }

    /// How values are read and written as text.
    pub(crate) fn text(&self) -> value::Context {
        self.0.lock().derived.text.clone()
    }
}

/// The parameters that [`Derived`] is made of.
const DERIVED_FROM: [&str; 11] = [
    "statement_timeout",
    "lock_timeout",
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
    "keystead.multi_partition",
    "default_transaction_read_only",
    "default_transaction_isolation",
    "keystead.command_id",
    "TimeZone",
    "DateStyle",
    "bytea_output",
];

impl Derived {
    fn of(values: &BTreeMap<String, String>) -> Self {
        let get = |name: &str| match values.get(name) {
            Some(value) => value.as_str(),
            None => find(name).map_or("", |parameter| parameter.value),
        };
        let duration = |name| {
            let millis = get(name).parse().ok().filter(|millis| *millis > 0);
            millis.map(Duration::from_millis)
        };
        let style = get("DateStyle");
        let date_order = if style.ends_with("DMY") {
            DateOrder::Dmy
        } else if style.ends_with("YMD") {
            DateOrder::Ymd
        } else {
            DateOrder::Mdy
        };
        let bytea_output = if get("bytea_output") == "escape" {
            value::ByteaOutput::Escape
        } else {
            value::ByteaOutput::Hex
        };
        Self {
            limits: Limits {
                statement: duration("statement_timeout"),
                lock: duration("lock_timeout"),
                idle: duration("idle_session_timeout"),
                idle_in_transaction: duration("idle_in_transaction_session_timeout"),
                many_partitions: get("keystead.multi_partition") == "each",
                read_only: get("default_transaction_read_only") == "on",
                is_read_committed: !matches!(
                    get("default_transaction_isolation"),
                    "repeatable read" | "serializable"
                ),
                is_named: !get("keystead.command_id").is_empty(),
            },
            text: value::Context {
                zone: Zone::parse(get("TimeZone")).unwrap_or_else(|_| Zone::utc()),
                date_order,
                bytea_output,
                ..value::Context::default()
            },
        }
    }
}

impl State {
    /// What a parameter is reset to; a placeholder stays, empty.
    fn reset_value(&self, key: &str) -> Option<String> {
        let known = find(key).is_some();
        self.reset.get(key).cloned().or_else(|| (!known).then(String::new))
    }

    fn put(&mut self, key: String, value: Option<String>, local: bool) {
        self.generation += 1;
        let old = match &value {
            Some(value) => self.values.insert(key.clone(), value.clone()),
            None => self.values.remove(&key),
        };
        if self.in_transaction {
            self.undo.push((key.clone(), old.clone(), local));
        }
        if old != value {
            self.note(&key);
        }
    }

    fn restore(&mut self, key: String, value: Option<String>) {
        self.generation += 1;
        let old = match &value {
            Some(value) => self.values.insert(key.clone(), value.clone()),
            None => self.values.remove(&key),
        };
        if old != value {
            self.note(&key);
        }
    }

    /// A value is another one now.
    fn note(&mut self, key: &str) {
        if DERIVED_FROM.contains(&key) {
            self.derived = Derived::of(&self.values);
        }
        if let Some(parameter) = find(key).filter(|parameter| parameter.reported)
            && !self.changed.contains(&parameter.name)
        {
            self.changed.push(parameter.name);
        }
    }
}

impl context::Settings for Settings {
    fn get(&self, name: &str) -> Option<String> {
        self.find(name)
    }

    fn set(&self, name: &str, value: &str, local: bool) -> Result<String> {
        self.assign(name, value, local)
    }

    fn all(&self) -> Vec<Setting> {
        let state = self.0.lock();
        let settings = KNOWN.iter().map(|parameter| Setting {
            name: parameter.name.to_owned(),
            value: shown(parameter, state.values.get(parameter.name)),
            reset: shown(parameter, state.reset.get(parameter.name)),
            description: parameter.description.to_owned(),
            settable: !matches!(parameter.shape, Shape::Fixed),
        });
        settings.collect()
    }

    fn activity(&self) -> Vec<Activity> {
        let activity = self.0.lock().activity.clone();
        activity()
    }
}

fn unrecognized(name: &str) -> Error {
    Error::new(Code::UndefinedObject, format!("unrecognized configuration parameter \"{name}\""))
}

fn fixed(name: &str) -> Error {
    Error::new(Code::CantChangeRuntimeParam, format!("parameter \"{name}\" cannot be changed"))
}

fn shown(parameter: &Parameter, value: Option<&String>) -> String {
    let text = value.map_or(parameter.value, String::as_str);
    match parameter.shape {
        Shape::Millis => match text.parse::<u64>() {
            Ok(0) | Err(_) => text.to_owned(),
            Ok(millis) if millis % 86_400_000 == 0 => format!("{}d", millis / 86_400_000),
            Ok(millis) if millis % 3_600_000 == 0 => format!("{}h", millis / 3_600_000),
            Ok(millis) if millis % 60_000 == 0 => format!("{}min", millis / 60_000),
            Ok(millis) if millis % 1_000 == 0 => format!("{}s", millis / 1_000),
            Ok(millis) => format!("{millis}ms"),
        },
        _ => text.to_owned(),
    }
}

fn check(parameter: &Parameter, value: &str) -> Result<String> {
    let invalid = || {
        Error::new(
            Code::InvalidParameterValue,
            format!("invalid value for parameter \"{}\": \"{value}\"", parameter.name),
        )
    };
    match parameter.shape {
        Shape::Text | Shape::List => Ok(value.to_owned()),
        Shape::CommandId if value.is_empty() => Ok(String::new()),
        Shape::CommandId => value.parse::<model::id::CommandId>().map(|id| id.to_string()),
        Shape::Fixed => Err(fixed(parameter.name)),
        Shape::Bool => match value.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" | "t" | "y" => Ok("on".to_owned()),
            "off" | "false" | "no" | "0" | "f" | "n" => Ok("off".to_owned()),
            _ => Err(Error::new(
                Code::InvalidParameterValue,
                format!("parameter \"{}\" requires a Boolean value", parameter.name),
            )),
        },
        Shape::Integer(min, max) => {
            let number: i64 = value.trim().parse().map_err(|_| invalid())?;
            if number < min || number > max {
                let message = format!(
                    "{number} is outside the valid range for parameter \"{}\" ({min} .. {max})",
                    parameter.name
                );
                return Err(Error::new(Code::InvalidParameterValue, message));
            }
            Ok(number.to_string())
        }
        Shape::Millis => millis(value).map(|millis| millis.to_string()).ok_or_else(invalid),
        Shape::Choice(choices) => {
            let lower = value.to_ascii_lowercase();
            let found = choices.iter().find(|choice| **choice == lower);
            found
                .map(|choice| (*choice).to_owned())
                .ok_or_else(|| invalid().with_hint(format!("Available values: {}.", choices.join(", "))))
        }
        // A number is hours east of UTC; POSIX names count westwards.
        Shape::Zone if value.trim().parse::<f64>().is_ok() => {
            let hours: f64 = value.trim().parse().map_err(|_| invalid())?;
            let minutes = (-hours * 60.0).round() as i64;
            let text = format!(
                "{}{}:{:02}",
                if minutes < 0 { "-" } else { "" },
                minutes.abs() / 60,
                minutes.abs() % 60
            );
            Zone::parse(&text).map(|zone| zone.name().to_owned()).map_err(|_| invalid())
        }
        Shape::Zone => Zone::parse(value).map(|zone| zone.name().to_owned()).map_err(|_| invalid()),
        Shape::DateStyle => date_style(value).ok_or_else(invalid),
        // As PostgreSQL looks encodings up: by their letters and digits alone.
        Shape::Encoding => {
            match value.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "").as_str() {
                "utf8" | "unicode" => Ok("UTF8".to_owned()),
                "sqlascii" => Ok("SQL_ASCII".to_owned()),
                _ => Err(invalid().with_hint("The encoding is UTF8.")),
            }
        }
    }
}

fn millis(value: &str) -> Option<u64> {
    let text = value.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1_000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let millis = (number * factor).round();
    (millis <= f64::from(i32::MAX)).then_some(millis as u64)
}

fn date_style(value: &str) -> Option<String> {
    let mut order = "MDY";
    for word in value.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty()) {
        match word.to_ascii_uppercase().as_str() {
            "ISO" | "DEFAULT" => {}
            "MDY" | "US" => order = "MDY",
            "DMY" | "EUROPEAN" | "EURO" => order = "DMY",
            "YMD" => order = "YMD",
            _ => return None,
        }
    }
    Some(format!("ISO, {order}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(&[], Arc::new(Vec::new)).expect("no startup values")
    }

    #[test]
    fn a_value_is_shown_as_postgresql_shows_it() {
        let settings = settings();
        settings.assign("statement_timeout", "90s", false).expect("a duration");
        assert_eq!(settings.find("statement_timeout").as_deref(), Some("90s"));
        settings.assign("STATEMENT_TIMEOUT", "1500", false).expect("milliseconds");
        assert_eq!(settings.find("statement_timeout").as_deref(), Some("1500ms"));
        settings.assign("datestyle", "iso, dmy", false).expect("a style");
        assert_eq!(settings.find("DateStyle").as_deref(), Some("ISO, DMY"));
        assert_eq!(settings.limits().statement, Some(Duration::from_millis(1_500)));
        assert_eq!(settings.text().date_order, DateOrder::Dmy);
        assert_eq!(settings.assign("nope", "1", false).expect_err("no such").code(), Code::UndefinedObject);
    }

    #[test]
    fn what_a_failed_transaction_set_is_undone_and_reported() {
        let settings = settings();
        settings.begin();
        settings.assign("application_name", "a", false).expect("a name");
        settings.assign("statement_timeout", "5", true).expect("a duration");
        settings.end(false);
        assert_eq!(settings.find("application_name").as_deref(), Some(""));
        assert_eq!(settings.limits().statement, None);
        assert_eq!(settings.drain_changed(), vec![("application_name", String::new())]);
        settings.begin();
        settings.assign("application_name", "b", false).expect("a name");
        settings.assign("statement_timeout", "5", true).expect("a duration");
        settings.end(true);
        assert_eq!(settings.find("application_name").as_deref(), Some("b"));
        assert_eq!(settings.find("statement_timeout").as_deref(), Some("0"));
    }
}
