//! Reading golden files: tab-separated columns with COPY's escapes, lines with `#` left out.

/// The rows of a file; `\N` is `None`.
pub(crate) fn rows(file: &str) -> Vec<Vec<Option<String>>> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').map(column).collect()).collect()
}

fn column(text: &str) -> Option<String> {
    if text == "\\N" {
        return None;
    }
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.push(match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            }),
            _ => plain.push(c),
        }
    }
    Some(plain)
}
