//! The README's two-minute tour, read from the page: its statements, its answers, its kill.

use std::fs;
use std::process::Command;

use tests::source;
use tests::torture::Victim;

use crate::subject::Subject;

/// A fenced block of the tour.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Ask(String),
    Expect(String),
    Kill,
}

fn steps(page: &str) -> Vec<Step> {
    let tour = page.split("\n## ").find(|part| part.starts_with("A two-minute tour")).unwrap_or_default();
    let mut steps = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in tour.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.to_owned(), String::new())),
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (Some((language, text)), Some(_)) => {
                match language.as_str() {
                    "sql" => steps.push(Step::Ask(text.clone())),
                    "text" => steps.push(Step::Expect(text.clone())),
                    "sh" if text.contains("kill -9") => steps.push(Step::Kill),
                    _ => {}
                }
                open = None;
            }
            (None, None) => {}
        }
    }
    steps
}

fn psql(subject: &Subject, sql: &str) -> String {
    let output = Command::new("psql")
        .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", &subject.address().url(), "-f", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .and_then(|mut process| {
            use std::io::Write;
            process.stdin.take().expect("stdin was piped").write_all(sql.as_bytes())?;
            process.wait_with_output()
        })
        .expect("psql is installed");
    assert!(output.status.success(), "{sql}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_tour_of_the_readme_works_kill_included() {
    let sample = "# x\n## A two-minute tour\n```sql\nSELECT 1;\n```\nand\n```text\n1\n```\n```sh\nkill -9 5\n```\n## Next\n```sql\nno\n```\n";
    assert_eq!(steps(sample), [Step::Ask("SELECT 1;\n".into()), Step::Expect("1\n".into()), Step::Kill]);

    let page = fs::read_to_string(source::root().join("README.md")).unwrap();
    let steps = steps(&page);
    assert!(steps.contains(&Step::Kill) && steps.len() >= 8, "the tour has lost its steps: {steps:?}");
    let mut subject = Subject::start_durable();
    let mut answer = String::new();
    for step in steps {
        match step {
            Step::Ask(sql) => answer = psql(&subject, &sql),
            Step::Expect(text) => assert_eq!(answer, text),
            Step::Kill => match &mut subject {
                Subject::Keystead(server) => {
                    server.kill().unwrap();
                    server.restart().unwrap();
                }
                Subject::Oracle(oracle) => {
                    Victim::kill(oracle).unwrap();
                    Victim::restart(oracle).unwrap();
                }
            },
        }
    }
}
