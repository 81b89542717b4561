//! Names of arguments, for the functions that people call with them (`make_interval(days => 10)`).
//!
//! Invariant: names stand in the order of the function's parameters. A default is what an argument is that is left out
//! before one that is given; those behind the last one given are left out of the call.

/// One argument: its name, and its default as SQL text if it has one.
pub(crate) type Named = (&'static str, Option<&'static str>);

/// The arguments of a function, if it may be called with their names.
pub(crate) fn arguments_of(name: &str) -> Option<&'static [Named]> {
    const ZERO: Option<&str> = Some("0");
    const NO: Option<&str> = Some("false");
    Some(match name {
        "make_interval" => &[
            ("years", ZERO),
            ("months", ZERO),
            ("weeks", ZERO),
            ("days", ZERO),
            ("hours", ZERO),
            ("mins", ZERO),
            ("secs", Some("0.0")),
        ],
        "make_date" => &[("year", None), ("month", None), ("day", None)],
        "make_time" => &[("hour", None), ("min", None), ("sec", None)],
        "make_timestamp" | "make_timestamptz" => &[
            ("year", None),
            ("month", None),
            ("mday", None),
            ("hour", None),
            ("min", None),
            ("sec", None),
            ("timezone", None),
        ],
        "jsonb_set" => {
            &[("jsonb_in", None), ("path", None), ("replacement", None), ("create_if_missing", Some("true"))]
        }
        "jsonb_insert" => &[("jsonb_in", None), ("path", None), ("replacement", None), ("insert_after", NO)],
        "jsonb_strip_nulls" | "json_strip_nulls" => &[("target", None)],
        "jsonb_path_exists"
        | "jsonb_path_match"
        | "jsonb_path_query"
        | "jsonb_path_query_array"
        | "jsonb_path_query_first" => {
            &[("target", None), ("path", None), ("vars", Some("'{}'")), ("silent", NO)]
        }
        "parse_ident" => &[("str", None), ("strict", Some("true"))],
        _ => return None,
    })
}
