//! COPY rows in and out: every value survives, and what is malformed is refused.

use model::{Code, Type, Value, types::Scalar, value};
use proptest::prelude::*;

use super::{CopyTo, Fields, Format, Header, OptionValue, Options, QuoteColumns, Splitter};
use crate::batch::{Batch, Column};

/// Rows of texts, none for null.
type Rows = Vec<Vec<Option<String>>>;

fn split(options: &Options, columns: usize, chunks: &[&[u8]]) -> model::Result<Rows> {
    let names: Vec<String> = (0..columns).map(|column| format!("c{column}")).collect();
    let mut splitter = Splitter::new(options, &names);
    let (mut rows, mut fields) = (Rows::new(), Fields::default());
    let mut take = |splitter: &mut Splitter| -> model::Result<()> {
        while splitter.next(&mut fields)? {
            let field = |index| fields.get(index).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            rows.push((0..fields.len()).map(field).collect());
        }
        Ok(())
    };
    for chunk in chunks {
        splitter.feed(chunk)?;
        take(&mut splitter)?;
    }
    splitter.finish();
    take(&mut splitter)?;
    Ok(rows)
}

fn texts(fields: &[&str]) -> Vec<Option<String>> {
    fields.iter().map(|field| Some((*field).to_owned())).collect()
}

fn csv() -> Options {
    Options { format: Format::Csv, delimiter: b',', null: String::new(), ..Options::default() }
}

#[test]
fn text_rows_are_taken_apart_as_postgresql_does() {
    let options = Options::default();
    let cases: [(&str, Rows); 7] = [
        ("a\tb\n", vec![texts(&["a", "b"])]),
        ("a\\tb\tc\n", vec![texts(&["a\tb", "c"])]),
        ("\\N\t\n", vec![vec![None, Some(String::new())]]),
        ("a\\\nb\tc\n", vec![texts(&["a\nb", "c"])]),
        ("\\101\\x42\tx\n", vec![texts(&["AB", "x"])]),
        ("a\tb\r\nc\td\r\n", vec![texts(&["a", "b"]), texts(&["c", "d"])]),
        ("a\tb\n\\.\nrest", vec![texts(&["a", "b"])]),
    ];
    for (input, expected) in cases {
        assert_eq!(split(&options, 2, &[input.as_bytes()]).expect("well formed"), expected, "{input:?}");
    }
}

#[test]
fn csv_rows_are_taken_apart_as_postgresql_does() {
    let cases: [(&str, Rows); 7] = [
        ("a,b\n", vec![texts(&["a", "b"])]),
        (",\"\"\n", vec![vec![None, Some(String::new())]]),
        ("\"a,b\",\"c\"\"d\"\n", vec![texts(&["a,b", "c\"d"])]),
        ("\"a\nb\",c\n", vec![texts(&["a\nb", "c"])]),
        ("a\"x\"b,c", vec![texts(&["axb", "c"])]),
        ("a,b\r\nc,d\r\n", vec![texts(&["a", "b"]), texts(&["c", "d"])]),
        ("a,b\n\\.\nc,d\n", vec![texts(&["a", "b"])]),
    ];
    for (input, expected) in cases {
        assert_eq!(split(&csv(), 2, &[input.as_bytes()]).expect("well formed"), expected, "{input:?}");
    }
}

#[test]
fn malformed_input_is_refused() {
    let text = Options::default();
    for (options, input, message) in [
        (csv(), "\"abc", "unterminated CSV quoted field"),
        (csv(), "a,b\nc\rd,e\n", "unquoted carriage return found in data"),
        (text.clone(), "a\nb\rc\n", "literal carriage return found in data"),
        (text.clone(), "a\r\nb\nc", "literal newline found in data"),
        (text, "\\.x\n", "end-of-copy marker corrupt"),
    ] {
        let error = split(&options, 2, &[input.as_bytes()]).expect_err(input);
        assert_eq!((error.code(), error.message()), (Code::BadCopyFileFormat, message), "{input:?}");
    }
}

#[test]
fn a_header_is_left_out_or_compared() {
    let named = Options { header: Header::Names, ..csv() };
    assert_eq!(split(&named, 2, &[b"x,y\n1,2\n"]).expect("a header"), [texts(&["1", "2"])]);
    let matching = Options { header: Header::Match, ..csv() };
    assert_eq!(split(&matching, 2, &[b"c0,c1\n1,2\n"]).expect("the header"), [texts(&["1", "2"])]);
    let error = split(&matching, 2, &[b"c0,x\n1,2\n"]).expect_err("another header");
    assert_eq!(error.message(), "column name mismatch in header line field 2: got \"x\", expected \"c1\"");
}

#[test]
fn options_are_checked_as_postgresql_checks_them() {
    let word = |name: &str, value: &str| (name.to_owned(), OptionValue::Word(value.to_owned()));
    for (written, from, code, message) in [
        (
            vec![word("format", "xml")],
            true,
            Code::InvalidParameterValue,
            "COPY format \"xml\" not recognized",
        ),
        (vec![word("quote", "x")], true, Code::FeatureNotSupported, "COPY quote available only in CSV mode"),
        (
            vec![word("format", "csv"), word("delimiter", "ab")],
            true,
            Code::FeatureNotSupported,
            "COPY delimiter must be a single one-byte character",
        ),
        (
            vec![word("format", "binary"), word("null", "x")],
            true,
            Code::SyntaxError,
            "cannot specify NULL in BINARY mode",
        ),
        (vec![word("nope", "x")], true, Code::SyntaxError, "option \"nope\" not recognized"),
        (vec![word("delimiter", "a")], false, Code::InvalidParameterValue, "COPY delimiter cannot be \"a\""),
    ] {
        let error = Options::parse(&written, from).expect_err(message);
        assert_eq!((error.code(), error.message()), (code, message));
    }
    let all = ("force_quote".to_owned(), OptionValue::Star);
    let options = Options::parse(&[word("format", "csv"), all], false).expect("good options");
    assert_eq!((options.delimiter, options.force_quote), (b',', QuoteColumns::All));
}

#[test]
fn binary_rows_may_be_cut_anywhere() {
    let batch = Batch::from_rows(
        &[Type::Int4, Type::Text],
        &[vec![Value::Int4(7), Value::text("x")], vec![Value::Null, Value::text("")]],
    );
    let options = Options { format: Format::Binary, ..Options::default() };
    let mut copy = CopyTo::new(&options, &["a".to_owned(), "b".to_owned()], value::Context::default());
    let mut bytes = Vec::new();
    copy.begin(&mut bytes);
    copy.batch(&batch, &mut bytes);
    copy.finish(&mut bytes);
    for cut in 0..bytes.len() {
        let rows = split(&options, 2, &[&bytes[..cut], &bytes[cut..]]).expect("well formed");
        assert_eq!(rows, [texts(&["\0\0\0\u{7}", "x"]), vec![None, Some(String::new())]], "cut at {cut}");
    }
    let error = split(&options, 3, &[&bytes]).expect_err("three columns");
    assert_eq!(error.message(), "row field count is 2, expected 3");
}

fn field() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        1 => Just(None),
        6 => "[ab,\"\\\\\t\r\n.N\u{e4}]{0,5}".prop_map(Some),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        rows in prop::collection::vec(prop::collection::vec(field(), 2), 0..6),
        format in prop::sample::select(vec![Format::Text, Format::Csv]),
        header: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut options = if format == Format::Csv { csv() } else { Options::default() };
        options.header = if header { Header::Match } else { Header::None };
        let values: Vec<Vec<Value>> = rows
            .iter()
            .map(|row| row.iter().map(|field| field.as_deref().map_or(Value::Null, Value::text)).collect())
            .collect();
        let batch = Batch::from_rows(&[Type::Text, Type::Text], &values);
        let mut copy = CopyTo::new(&options, &["c0".to_owned(), "c1".to_owned()], value::Context::default());
        let mut bytes = Vec::new();
        copy.begin(&mut bytes);
        copy.batch(&batch, &mut bytes);
        copy.finish(&mut bytes);
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for place in places {
            chunks.push(&bytes[from..place]);
            from = place;
        }
        chunks.push(&bytes[from..]);
        prop_assert_eq!(split(&options, 2, &chunks).expect("what was written"), rows);
    }

    #[test]
    fn any_bytes_are_read_or_refused_and_chunks_do_not_matter(
        bytes in prop::collection::vec(prop::sample::select(b"ab,\"\\\t\r\nN.\x00\xff1".to_vec()), 0..40),
        cut in any::<prop::sample::Index>(),
        format in prop::sample::select(vec![Format::Text, Format::Csv, Format::Binary]),
    ) {
        let mut options = if format == Format::Csv { csv() } else { Options::default() };
        options.format = format;
        let cut = cut.index(bytes.len() + 1);
        let whole = split(&options, 2, &[&bytes]).map_err(|error| error.message().to_owned());
        let cut_up = split(&options, 2, &[&bytes[..cut], &bytes[cut..]]).map_err(|error| error.message().to_owned());
        prop_assert_eq!(whole, cut_up);
    }
}

#[test]
fn arrays_and_bytes_are_written_as_their_text() {
    let column = Column::from_values(
        Type::Array(Scalar::Int4),
        &[Value::Array(value::Array::from_values(Scalar::Int4, vec![Value::Int4(1), Value::Null]).into())],
    );
    let mut copy = CopyTo::new(&csv(), &["a".to_owned()], value::Context::default());
    let mut bytes = Vec::new();
    copy.batch(&Batch::of(vec![column]), &mut bytes);
    assert_eq!(bytes, b"\"{1,NULL}\"\n");
}
