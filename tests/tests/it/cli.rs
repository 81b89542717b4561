//! The commands beside `serve`, as a user types them: `sql`, `status`, `import`, `export`, `doctor`.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use tests::keystead::{self, Keystead};

/// What a command said and how it ended.
struct Said {
    out: String,
    err: String,
    code: Option<i32>,
}

fn say(output: std::process::Output) -> Said {
    Said {
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

/// Runs `keystead COMMAND --data DIR …` against a server.
fn ask(server: &Keystead, command: &str, arguments: &[&str]) -> Said {
    let data = server.data().to_str().unwrap();
    say(keystead::run(&[&[command, "--data", data][..], arguments].concat()).unwrap())
}

fn sql(server: &Keystead, statement: &str) -> String {
    let said = ask(server, "sql", &["--format", "csv", "-c", statement]);
    assert_eq!(said.code, Some(0), "{statement}: {}", said.err);
    said.out
}

#[test]
fn sql_prints_results_in_each_format_and_ends_with_their_code() {
    let server = Keystead::start().unwrap();
    sql(&server, "CREATE TABLE t (id int PRIMARY KEY, name text, j jsonb, n numeric(8,2))");
    sql(&server, r#"INSERT INTO t VALUES (1, 'a,"b"', '{"k": [1, 2]}', 1.5), (2, NULL, NULL, NULL)"#);
    let all = "SELECT * FROM t ORDER BY id";
    let table = ask(&server, "sql", &["-c", all]).out;
    assert!(table.contains(" id | name  |       j       |  n   \n"), "{table}");
    assert!(table.ends_with("(2 rows)\n\n"), "{table}");
    assert_eq!(sql(&server, all), "id,name,j,n\n1,\"a,\"\"b\"\"\",\"{\"\"k\"\": [1, 2]}\",1.50\n2,,,\n");
    let json = ask(&server, "sql", &["--format", "json", "-c", all]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["j"]["k"][1], 2);
    assert_eq!(json[0]["n"].to_string(), "1.5");
    assert!(json[1]["name"].is_null());

    // A failure says what, where, and ends what follows.
    let failed = ask(&server, "sql", &["-c", "SELEC 1"]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.err.contains("syntax error") && failed.err.contains("LINE 1: SELEC 1"), "{}", failed.err);
    let mut shell = keystead::spawn(&["sql", "--data", server.data().to_str().unwrap(), "-f", "-"]).unwrap();
    let script = "INSERT INTO t VALUES (3);\nSELECT 1/0;\nINSERT INTO t VALUES (4);\n";
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let said = say(shell.wait_with_output().unwrap());
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("division by zero"), "{}", said.err);
    assert_eq!(sql(&server, "SELECT count(*) FROM t"), "count\n3\n");

    // Nobody listens there.
    let refused = ask(&server, "sql", &["--host", "127.0.0.1", "--port", "1", "-c", "SELECT 1"]);
    assert_eq!(refused.code, Some(69), "{}", refused.err);
}

#[test]
fn status_and_doctor_tell_how_the_server_is() {
    let mut server = Keystead::start().unwrap();
    sql(&server, "CREATE TABLE t (id int PRIMARY KEY)");
    sql(&server, "CREATE TABLE u (id int PRIMARY KEY)");
    let json = ask(&server, "status", &["--json"]);
    assert_eq!(json.code, Some(0), "{}", json.err);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["process"], server.pid().to_string());
    assert_eq!((&json["ready"], &json["tables"]), (&"yes".into(), &"2".into()), "{json}");
    let lines = ask(&server, "status", &[]).out;
    assert!(lines.lines().any(|line| line == format!("sql       {}", server.ready().sql)), "{lines}");
    assert!(!lines.contains('?'), "a fact is missing: {lines}");

    let healthy = ask(&server, "doctor", &[]);
    assert_eq!(healthy.code, Some(0), "{}", healthy.out);
    assert!(healthy.out.contains(&format!("process {} serves", server.pid())), "{}", healthy.out);
    server.stop().unwrap();
    let stopped = ask(&server, "doctor", &[]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.out);
    assert!(stopped.out.contains("none runs here"), "{}", stopped.out);
    assert_ne!(ask(&server, "status", &[]).code, Some(0), "no server, no status");

    // A directory of somebody else's is named as such by both.
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("holiday.jpg"), "not ours").unwrap();
    let foreign = place.path().to_str().unwrap();
    let mut serve = vec!["serve", "--data", foreign];
    for door in ["--sql", "--http", "--grpc", "--peer"] {
        serve.extend([door, "127.0.0.1:0"]);
    }
    for command in [vec!["doctor", "--data", foreign], serve] {
        let said = say(keystead::run(&command).unwrap());
        assert_ne!(said.code, Some(0), "{command:?}");
        let text = said.out + &said.err;
        assert!(text.contains("holiday.jpg"), "{command:?}: {text}");
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing was written there");
}

#[test]
fn import_counts_what_it_skips_and_export_gives_it_back() {
    let server = Keystead::start().unwrap();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    sql(&server, "CREATE TABLE t (id int PRIMARY KEY, name text, j jsonb, d date)");
    fs::write(
        at("a.csv"),
        "id,name,j\n10,ten,\"{\"\"a\"\":1}\"\neleven,bad,\n12,twelve,not json\n13,\"thir\nteen\",\n10,again,\n14,a,b,c\n15\n",
    )
    .unwrap();
    let said = ask(&server, "import", &["t", &at("a.csv")]);
    assert_eq!((said.code, &*said.out), (Some(1), "2 rows imported, 5 skipped\n"), "{}", said.err);
    for problem in ["row 2 skipped: invalid input syntax for type integer", "row 6 skipped: 4 fields"] {
        assert!(said.err.contains(problem), "{}", said.err);
    }
    fs::write(
        at("b.jsonl"),
        "{\"id\":20,\"name\":\"x\",\"j\":{\"deep\":[1,{\"y\":null}]}}\n{\"id\":21,\"d\":\"2020-02-03\"}\n{\"id\":22,\"nosuch\":1}\nnot json\n",
    )
    .unwrap();
    let said = ask(&server, "import", &["t", &at("b.jsonl")]);
    assert_eq!((said.code, &*said.out), (Some(1), "2 rows imported, 2 skipped\n"), "{}", said.err);
    // Too many refusals end it.
    let said = ask(&server, "import", &["--skipped-max", "1", "t", &at("a.csv")]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("more than 1 rows were refused"), "{}", said.err);
    for (table, file) in [("nosuch", at("a.csv")), ("t", at("nosuch.csv"))] {
        assert_ne!(ask(&server, "import", &[table, &file]).code, Some(0), "{table} {file}");
    }

    // Out and in again: the same rows.
    for name in ["out.csv", "out.jsonl"] {
        let said = ask(&server, "export", &["t", &at(name)]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        sql(&server, "CREATE TABLE again (id int PRIMARY KEY, name text, j jsonb, d date)");
        let said = ask(&server, "import", &["again", &at(name)]);
        assert_eq!(
            (said.code, &*said.out),
            (Some(0), "4 rows imported, 0 skipped\n"),
            "{name}: {}",
            said.err
        );
        let differing = "SELECT count(*) FROM (SELECT * FROM t EXCEPT SELECT * FROM again) x";
        assert_eq!(sql(&server, differing), "count\n0\n", "{name}");
        sql(&server, "DROP TABLE again");
    }
    let said = ask(&server, "export", &["(SELECT id FROM t ORDER BY id)", "-"]);
    assert_eq!(said.out, "id\n10\n13\n20\n21\n");
    let said = ask(&server, "import", &["nosuch", &at("a.csv")]);
    assert!(said.err.contains("relation \"nosuch\" does not exist"), "{}", said.err);
}

/// A pipe is written to, a link is followed, and a file that is there keeps its rights; a failed export leaves it as it was.
#[test]
fn export_replaces_nothing_but_a_file_and_leaves_its_rights() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let server = Keystead::start().unwrap();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let export = |to: &Path| ask(&server, "export", &["(SELECT 1 AS one)", to.to_str().unwrap()]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;

    fs::write(at("private.csv"), "old").unwrap();
    fs::set_permissions(at("private.csv"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink(at("private.csv"), at("link.csv")).unwrap();
    let failed = ask(&server, "export", &["(SELECT 1 / 0)", at("private.csv").to_str().unwrap()]);
    assert_ne!(failed.code, Some(0));
    assert_eq!(fs::read_to_string(at("private.csv")).unwrap(), "old");
    assert_eq!(export(&at("link.csv")).code, Some(0));
    assert!(fs::symlink_metadata(at("link.csv")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(at("private.csv")).unwrap(), "one\n1\n");
    assert_eq!(mode(&at("private.csv")), 0o600);

    assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let pipe = at("pipe");
    let reader = std::thread::spawn(move || fs::read_to_string(pipe).unwrap());
    assert_eq!(export(&at("pipe")).code, Some(0));
    assert_eq!(reader.join().unwrap(), "one\n1\n");
    assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo());
    assert_eq!(export(Path::new("/dev/null")).code, Some(0));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3, "nothing unfinished is left");
}

/// A reader that goes, as `head` does, is no error.
#[test]
fn a_command_whose_reader_has_gone_ends_without_a_word() {
    let server = Keystead::start().unwrap();
    let mut shell = std::process::Command::new(keystead::binary().unwrap());
    shell.args(["sql", "--data", server.data().to_str().unwrap(), "-c", "\\dt"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let said = shell.stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!((said.status.code(), said.stderr), (Some(0), Vec::new()));
}

const ROWS: u64 = 100_000;

fn count(server: &Keystead) -> u64 {
    let told = sql(server, "SELECT count(*) FROM t");
    told.lines().last().and_then(|line| line.parse().ok()).unwrap()
}

/// Imports until the table holds `until` rows, then SIGKILLs the importer.
fn import_and_kill(server: &Keystead, file: &Path, until: u64) {
    let data = server.data().to_str().unwrap();
    let mut importer =
        keystead::spawn(&["import", "--data", data, "--chunk-rows-max", "100", "t", file.to_str().unwrap()])
            .unwrap();
    while count(server) < until {
        assert!(importer.try_wait().unwrap().is_none(), "the import ended before it could be killed");
    }
    importer.kill().unwrap();
    importer.wait().unwrap();
}

/// The table has no key and numbers its rows: a chunk sent twice would be there twice.
#[test]
fn a_killed_import_goes_on_and_brings_each_row_once() {
    let mut server = Keystead::start().unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("rows.csv");
    let noted = place.path().join("rows.csv.keystead-import");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"id,name\n").unwrap();
    for id in 0..ROWS {
        writeln!(file, "{id},row {id}").unwrap();
    }
    drop(file);
    sql(
        &server,
        "CREATE TABLE t (number bigserial, id int, name text, at timestamptz DEFAULT clock_timestamp())",
    );
    import_and_kill(&server, &path, 500);
    let early = fs::read(&noted).unwrap();
    import_and_kill(&server, &path, 2_000);
    // Another size of chunks is asked for below: what was cut once is cut the same way again.
    // What the importer noted last is lost with a power cut: it goes on from chunks ago.
    fs::write(&noted, early).unwrap();
    import_and_kill(&server, &path, 3_000);
    server.kill().unwrap();
    server.restart().unwrap();
    let said = ask(&server, "import", &["--chunk-rows-max", "70", "t", path.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.out, format!("{ROWS} rows imported, 0 skipped\n"));
    assert!(said.err.contains("going on after row"), "{}", said.err);
    assert!(!noted.exists(), "a finished import leaves nothing beside its file");
    let told = sql(&server, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM t");
    assert_eq!(told.lines().last().unwrap(), format!("{ROWS},{ROWS},0,{}", ROWS - 1));
}
