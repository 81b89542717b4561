//! Every type's text and binary form against PostgreSQL's, from `golden/forms.tsv`.

use model::types::Type;
use model::value::{Context, Value, Zone, binary, text_io};

mod golden;

fn context() -> Context {
    Context { zone: Zone::parse("Europe/Berlin").expect("a zone"), ..Context::default() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What our side answers: text and hex, or the error as the file writes it.
fn answer(of: &str, input: &str) -> (String, String) {
    let context = context();
    let (of, typmod) = Type::parse(of).expect("a type of the file");
    let value = text_io::parse(of, typmod, input, &context)
        .and_then(|value| text_io::apply_typmod(value, of, typmod, false));
    match value {
        Ok(value) => {
            let mut sent = Vec::new();
            binary::encode_binary(&value, of, &mut sent);
            (text_io::to_text(&value, of, &context).expect("not null"), hex(&sent))
        }
        Err(error) => (format!("!{} {}", error.code(), error.message()), String::new()),
    }
}

#[test]
fn texts_and_bytes_are_those_of_postgresql() {
    let mut wrong = Vec::new();
    let rows = golden::rows(include_str!("golden/forms.tsv"));
    assert!(rows.len() > 500);
    for row in &rows {
        let [of, input, shown, sent] = row.as_slice() else { panic!("four columns in {row:?}") };
        let (of, input) = (of.as_deref().expect("type"), input.as_deref().expect("input"));
        let expected = (shown.clone().unwrap_or_default(), sent.clone().unwrap_or_default());
        let found = answer(of, input);
        if found != expected {
            wrong.push(format!("{of} {input:?}\n    expected {expected:?}\n    found    {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn what_is_written_is_read_back() {
    let context = context();
    for row in golden::rows(include_str!("golden/forms.tsv")) {
        let (of, input) = (row[0].as_deref().expect("type"), row[1].as_deref().expect("input"));
        let (of, typmod) = Type::parse(of).expect("a type of the file");
        let Ok(value) = text_io::parse(of, typmod, input, &context) else { continue };
        let text = text_io::to_text(&value, of, &context).expect("not null");
        let again = text_io::parse(of, typmod, &text, &context)
            .unwrap_or_else(|error| panic!("{of} {text}: {error}"));
        assert_eq!(again, value, "{of} {text}");
        let mut sent = Vec::new();
        binary::encode_binary(&value, of, &mut sent);
        let again = binary::decode_binary(of, &sent).unwrap_or_else(|error| panic!("{of} {text}: {error}"));
        assert!(again.eq_sql(&value) && again == value, "{of} {text}: {again:?}");
        for cut in 0..sent.len() {
            // Anything but a panic.
            let _: Result<Value, _> = binary::decode_binary(of, &sent[..cut]);
        }
    }
}
