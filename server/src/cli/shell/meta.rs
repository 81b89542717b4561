//! Commands that begin with a backslash: each is a query over the catalogs, or a change of the shell itself.

/// What a backslash command asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meta {
    /// Run queries and show their results under headings.
    Queries(Vec<(String, String)>),
    /// Switch the expanded display.
    Expanded,
    /// Switch timing.
    Timing,
    /// Read statements from a file.
    Include(String),
    /// Show help.
    Help,
    /// Leave.
    Quit,
    /// Not a command.
    Unknown(String),
}

/// What `\?` shows.
pub(super) const HELP: &str = "\
  \\d [NAME]    relations, or one relation's columns, indexes and constraints
  \\dt          tables
  \\di          indexes
  \\dv          views
  \\dn          schemas
  \\du          roles
  \\l           databases
  \\x           expanded display on/off
  \\timing      time of each statement on/off
  \\i FILE      run the statements of a file
  \\q           leave
  end a statement with a semicolon";

/// Names for completion.
pub(super) const COMMANDS: [&str; 12] =
    ["\\d", "\\dt", "\\di", "\\dv", "\\dn", "\\du", "\\l", "\\x", "\\timing", "\\i", "\\q", "\\?"];

/// Reads a line that begins with a backslash.
pub(super) fn parse(line: &str) -> Meta {
    let line = line.trim().trim_end_matches(';');
    let (command, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim();
    match command {
        "\\d" if argument.is_empty() => relations("Relations", "'r','v','S','m','p'"),
        "\\d" | "\\d+" => describe(argument),
        "\\dt" | "\\dt+" => relations("Tables", "'r','p'"),
        "\\di" | "\\di+" => relations("Indexes", "'i'"),
        "\\dv" | "\\dv+" => relations("Views", "'v'"),
        "\\ds" => relations("Sequences", "'S'"),
        "\\dn" | "\\dn+" => one(
            "Schemas",
            "select n.nspname as \"Name\", pg_catalog.pg_get_userbyid(n.nspowner) as \"Owner\" from \
             pg_catalog.pg_namespace n where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' order by 1",
        ),
        "\\du" | "\\dg" => one(
            "Roles",
            "select rolname as \"Name\", rolsuper as \"Superuser\", rolcreatedb as \"Create DB\", rolcreaterole as \
             \"Create role\", rolcanlogin as \"Login\" from pg_catalog.pg_roles where rolname !~ '^pg_' order by 1",
        ),
        "\\l" | "\\l+" => one(
            "Databases",
            "select datname as \"Name\", pg_catalog.pg_get_userbyid(datdba) as \"Owner\" from \
             pg_catalog.pg_database order by 1",
        ),
        "\\x" => Meta::Expanded,
        "\\timing" => Meta::Timing,
        "\\i" if !argument.is_empty() => Meta::Include(argument.trim_matches('\'').to_owned()),
        "\\?" | "\\h" | "\\help" => Meta::Help,
        "\\q" => Meta::Quit,
        other => Meta::Unknown(other.to_owned()),
    }
}

fn one(heading: &str, query: &str) -> Meta {
    Meta::Queries(vec![(heading.to_owned(), query.to_owned())])
}

fn relations(heading: &str, kinds: &str) -> Meta {
    Meta::Queries(vec![(
        heading.to_owned(),
        format!(
            "select n.nspname as \"Schema\", c.relname as \"Name\", case c.relkind when 'r' then 'table' when 'v' \
             then 'view' when 'i' then 'index' when 'S' then 'sequence' else 'other' end as \"Type\", \
             pg_catalog.pg_get_userbyid(c.relowner) as \"Owner\" from pg_catalog.pg_class c join \
             pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relkind in ({kinds}) and n.nspname <> \
             'pg_catalog' and n.nspname <> 'information_schema' order by 1, 2"
        ),
    )])
}

fn describe(name: &str) -> Meta {
    let literal = format!("'{}'", name.replace('\'', "''"));
    Meta::Queries(vec![
        (
            format!("Columns of {name}"),
            format!(
                "select a.attname as \"Column\", pg_catalog.format_type(a.atttypid, a.atttypmod) as \"Type\", case \
                 when a.attnotnull then 'not null' else '' end as \"Nullable\", pg_catalog.pg_get_expr(d.adbin, \
                 d.adrelid) as \"Default\" from pg_catalog.pg_attribute a left join pg_catalog.pg_attrdef d on \
                 d.adrelid = a.attrelid and d.adnum = a.attnum where a.attrelid = {literal}::regclass and a.attnum \
                 > 0 and not a.attisdropped order by a.attnum"
            ),
        ),
        (
            "Indexes".to_owned(),
            format!(
                "select c.relname as \"Name\", pg_catalog.pg_get_indexdef(i.indexrelid) as \"Definition\" from \
                 pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid where i.indrelid = \
                 {literal}::regclass order by 1"
            ),
        ),
        (
            "Constraints".to_owned(),
            format!(
                "select conname as \"Name\", pg_catalog.pg_get_constraintdef(oid) as \"Definition\" from \
                 pg_catalog.pg_constraint where conrelid = {literal}::regclass order by 1"
            ),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslash_commands_are_understood_or_said_to_be_unknown() {
        assert_eq!(parse("\\q"), Meta::Quit);
        assert_eq!(parse("\\i 'a file.sql'"), Meta::Include("a file.sql".to_owned()));
        assert_eq!(parse("\\nope"), Meta::Unknown("\\nope".to_owned()));
        let Meta::Queries(queries) = parse("\\d o'clock;") else { panic!("a description") };
        assert!(queries[0].1.contains("'o''clock'::regclass"));
    }
}
