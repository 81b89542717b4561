//! Operations on values against PostgreSQL's answers, from `golden/operations.tsv`.

use model::types::{Type, Typmod};
use model::value::datetime::fields;
use model::value::json::SetMode;
use model::value::{
    Context, Date, Interval, Jsonb, Numeric, Time, Timestamp, Value, ValueError, Zone, text_io,
};

mod golden;

fn context() -> Context {
    Context { zone: Zone::parse("Europe/Berlin").expect("a zone"), ..Context::default() }
}

/// One question: its template and its arguments as the types they are used as.
struct Question<'a> {
    template: &'a str,
    arguments: [&'a str; 3],
    context: Context,
}

type Answer = Result<Option<String>, ValueError>;

impl Question<'_> {
    fn value(&self, index: usize, of: Type) -> Result<Value, ValueError> {
        text_io::parse(of, Typmod::NONE, self.arguments[index], &self.context)
    }

    fn numeric(&self, index: usize) -> Result<Numeric, ValueError> {
        self.arguments[index].parse()
    }

    fn number(&self, index: usize) -> i32 {
        self.arguments[index].parse().expect("an integer argument")
    }

    fn float(&self, index: usize) -> f64 {
        self.arguments[index].parse().expect("a float argument")
    }

    fn timestamp(&self, index: usize) -> Result<Timestamp, ValueError> {
        match self.value(index, Type::Timestamp)? {
            Value::Timestamp(timestamp) => Ok(timestamp),
            other => panic!("{other:?}"),
        }
    }

    fn timestamptz(&self, index: usize) -> Result<Timestamp, ValueError> {
        match self.value(index, Type::Timestamptz)? {
            Value::Timestamptz(timestamp) => Ok(timestamp),
            other => panic!("{other:?}"),
        }
    }

    fn date(&self, index: usize) -> Result<Date, ValueError> {
        match self.value(index, Type::Date)? {
            Value::Date(date) => Ok(date),
            other => panic!("{other:?}"),
        }
    }

    fn time(&self, index: usize) -> Result<Time, ValueError> {
        match self.value(index, Type::Time)? {
            Value::Time(time) => Ok(time),
            other => panic!("{other:?}"),
        }
    }

    fn interval(&self, index: usize) -> Result<Interval, ValueError> {
        match self.value(index, Type::Interval)? {
            Value::Interval(interval) => Ok(interval),
            other => panic!("{other:?}"),
        }
    }

    fn json(&self, index: usize) -> Result<Jsonb, ValueError> {
        Jsonb::parse(self.arguments[index])
    }

    fn field(&self) -> fields::DateField {
        self.arguments[0].parse().expect("a field")
    }

    /// `{a,b}` as steps.
    fn path(&self, index: usize) -> Vec<&str> {
        let inner = self.arguments[index].trim_matches(['{', '}']);
        if inner.is_empty() { Vec::new() } else { inner.split(',').collect() }
    }

    fn show(&self, value: Value) -> Answer {
        let of = value.natural_type().unwrap_or(Type::Text);
        Ok(text_io::to_text(&value, of, &self.context))
    }

    fn show_bool(&self, value: bool) -> Answer {
        self.show(Value::Bool(value))
    }

    fn show_numeric(&self, value: Result<Numeric, ValueError>) -> Answer {
        self.show(Value::Numeric(value?))
    }

    fn show_json(&self, value: Result<Jsonb, ValueError>) -> Answer {
        self.show(Value::Jsonb(value?))
    }

    fn answer(&self) -> Answer {
        let template = self.template;
        if let Some(of) = template.strip_prefix("to_jsonb($1::").and_then(|rest| rest.strip_suffix(')')) {
            let (of, _) = Type::parse(of).expect("a type");
            return self.show_json(Jsonb::from_value(&self.value(0, of)?, of, &self.context));
        }
        match template {
            "$1::numeric + $2::numeric" => self.show_numeric(self.numeric(0)?.add(&self.numeric(1)?)),
            "$1::numeric - $2::numeric" => self.show_numeric(self.numeric(0)?.sub(&self.numeric(1)?)),
            "$1::numeric * $2::numeric" => self.show_numeric(self.numeric(0)?.mul(&self.numeric(1)?)),
            "$1::numeric / $2::numeric" => self.show_numeric(self.numeric(0)?.div(&self.numeric(1)?)),
            "$1::numeric % $2::numeric" => self.show_numeric(self.numeric(0)?.rem(&self.numeric(1)?)),
            "sqrt($1::numeric)" => self.show_numeric(self.numeric(0)?.sqrt()),
            "exp($1::numeric)" => self.show_numeric(self.numeric(0)?.exp()),
            "ln($1::numeric)" => self.show_numeric(self.numeric(0)?.ln()),
            "log($1::numeric, $2::numeric)" => self.show_numeric(self.numeric(1)?.log(&self.numeric(0)?)),
            "power($1::numeric, $2::numeric)" => self.show_numeric(self.numeric(0)?.power(&self.numeric(1)?)),
            "abs($1::numeric)" => self.show_numeric(Ok(self.numeric(0)?.abs())),
            "sign($1::numeric)" => self.show_numeric(Ok(self.numeric(0)?.sign())),
            "ceil($1::numeric)" => self.show_numeric(Ok(self.numeric(0)?.ceil())),
            "floor($1::numeric)" => self.show_numeric(Ok(self.numeric(0)?.floor())),
            "scale($1::numeric)" => Ok(self.numeric(0)?.scale().map(|scale| scale.to_string())),
            "min_scale($1::numeric)" => Ok(self.numeric(0)?.min_scale().map(|scale| scale.to_string())),
            "trim_scale($1::numeric)" => self.show_numeric(Ok(self.numeric(0)?.trim_scale())),
            "round($1::numeric, $2)" => self.show_numeric(Ok(self.numeric(0)?.round(self.number(1)))),
            "trunc($1::numeric, $2)" => self.show_numeric(Ok(self.numeric(0)?.trunc(self.number(1)))),
            "gcd($1::numeric, $2::numeric)" => self.show_numeric(self.numeric(0)?.gcd(&self.numeric(1)?)),
            "lcm($1::numeric, $2::numeric)" => self.show_numeric(self.numeric(0)?.lcm(&self.numeric(1)?)),
            "div($1::numeric, $2::numeric)" => {
                self.show_numeric(self.numeric(0)?.div_trunc(&self.numeric(1)?))
            }
            "$1::float8::numeric" => self.show_numeric(Ok(Numeric::from_f64(self.float(0)))),
            "$1::float4::numeric" => self.show_numeric(Ok(Numeric::from_f32(self.float(0) as f32))),
            "$1::numeric::float8" => self.show(Value::Float8(self.numeric(0)?.to_f64())),
            "$1::numeric::int8" => self.show(Value::Int8(self.numeric(0)?.to_i64().expect("in range"))),
            _ => self.answer_datetime(),
        }
    }

    fn answer_datetime(&self) -> Answer {
        let zone = &self.context.zone;
        let shown_numeric = |number: Option<Numeric>| number.map(|number| number.to_string());
        match self.template {
            "extract($1 from $2::timestamp)" => {
                fields::extract_timestamp(self.field(), self.timestamp(1)?).map(shown_numeric)
            }
            "extract($1 from $2::timestamptz)" => {
                fields::extract_timestamptz(self.field(), self.timestamptz(1)?, zone).map(shown_numeric)
            }
            "extract($1 from $2::date)" => {
                fields::extract_date(self.field(), self.date(1)?).map(shown_numeric)
            }
            "extract($1 from $2::time)" => {
                self.show_numeric(fields::extract_time(self.field(), self.time(1)?))
            }
            "extract($1 from $2::interval)" => {
                self.show_numeric(fields::extract_interval(self.field(), self.interval(1)?))
            }
            "date_trunc($1, $2::timestamp)" => {
                self.show(Value::Timestamp(fields::trunc_timestamp(self.field(), self.timestamp(1)?)?))
            }
            "date_trunc($1, $2::timestamptz)" => self.show(Value::Timestamptz(fields::trunc_timestamptz(
                self.field(),
                self.timestamptz(1)?,
                zone,
            )?)),
            "date_trunc($1, $2::interval)" => {
                self.show(Value::Interval(fields::trunc_interval(self.field(), self.interval(1)?)?))
            }
            "$1::timestamp + $2::interval" => {
                self.show(Value::Timestamp(self.timestamp(0)?.add_interval(self.interval(1)?)?))
            }
            "$1::timestamptz + $2::interval" => {
                self.show(Value::Timestamptz(self.timestamptz(0)?.add_interval_in(self.interval(1)?, zone)?))
            }
            "$1::interval * $2::float8" => self.show(Value::Interval(self.interval(0)?.mul(self.float(1))?)),
            "$1::interval / $2::float8" => self.show(Value::Interval(self.interval(0)?.div(self.float(1))?)),
            "justify_hours($1::interval)" => self.show(Value::Interval(self.interval(0)?.justify_hours()?)),
            "justify_days($1::interval)" => self.show(Value::Interval(self.interval(0)?.justify_days()?)),
            "justify_interval($1::interval)" => self.show(Value::Interval(self.interval(0)?.justify()?)),
            "-($1::interval)" => self.show(Value::Interval(self.interval(0)?.neg()?)),
            "age($1::timestamp, $2::timestamp)" => {
                self.show(Value::Interval(self.timestamp(0)?.age(self.timestamp(1)?)?))
            }
            "$1::timestamp - $2::timestamp" => {
                self.show(Value::Interval(self.timestamp(0)?.since(self.timestamp(1)?)?))
            }
            "date_bin($1::interval, $2::timestamp, $3::timestamp)" => {
                self.show(Value::Timestamp(self.timestamp(1)?.bin(self.interval(0)?, self.timestamp(2)?)?))
            }
            "$1::timestamp at time zone $2" => {
                let zone = Zone::parse_with_abbreviations(self.arguments[1])?;
                self.show(Value::Timestamptz(zone.to_instant(self.timestamp(0)?)?))
            }
            "$1::timestamptz at time zone $2" => {
                let zone = Zone::parse_with_abbreviations(self.arguments[1])?;
                self.show(Value::Timestamp(zone.to_local(self.timestamptz(0)?)))
            }
            "make_date($1, $2, $3)" => {
                self.show(Value::Date(fields::make_date(self.number(0), self.number(1), self.number(2))?))
            }
            "make_time($1, $2, $3)" => {
                self.show(Value::Time(fields::make_time(self.number(0), self.number(1), self.float(2))?))
            }
            "$1::date + $2::int" => self.show(Value::Date(self.date(0)?.add_days(self.number(1))?)),
            "$1::date - $2::date" => Ok(Some(self.date(0)?.days_since(self.date(1)?)?.to_string())),
            "$1::time + $2::interval" => {
                self.show(Value::Time(self.time(0)?.add_interval(self.interval(1)?)))
            }
            "$1::time - $2::time" => self.show(Value::Interval(self.time(0)?.since(self.time(1)?))),
            "$1::date + $2::time" => self.show(Value::Timestamp(self.date(0)?.at(self.time(1)?)?)),
            _ => self.answer_json(),
        }
    }

    fn answer_json(&self) -> Answer {
        let json = self.json(0)?;
        let set = |mode: SetMode| self.show_json(json.set_path(&self.path(1), &self.json(2)?, mode));
        match self.template {
            "$1::jsonb -> $2" => Ok(json.get_key(self.arguments[1]).map(|json| json.to_string())),
            "$1::jsonb ->> $2" => Ok(json.root().get_key(self.arguments[1]).and_then(|node| node.as_text())),
            "$1::jsonb ? $2" => self.show_bool(json.exists(self.arguments[1])),
            "$1::jsonb - $2" => self.show_json(json.delete_key(self.arguments[1])),
            "$1::jsonb -> $2::int" => Ok(json.get_index(self.number(1).into()).map(|json| json.to_string())),
            "$1::jsonb - $2::int" => self.show_json(json.delete_index(self.number(1).into())),
            "$1::jsonb #> $2" => Ok(json.find_path(self.path(1)).map(|node| node.to_jsonb().to_string())),
            "$1::jsonb #>> $2" => Ok(json.find_path(self.path(1)).and_then(|node| node.as_text())),
            "$1::jsonb #- $2" => self.show_json(json.delete_path(&self.path(1))),
            "jsonb_set($1, $2, $3, true)" => set(SetMode::SetOrCreate),
            "jsonb_set($1, $2, $3, false)" => set(SetMode::Set),
            "jsonb_insert($1, $2, $3, false)" => set(SetMode::InsertBefore),
            "jsonb_insert($1, $2, $3, true)" => set(SetMode::InsertAfter),
            "jsonb_typeof($1)" => Ok(Some(json.root().type_name().to_owned())),
            "jsonb_strip_nulls($1)" => self.show_json(Ok(json.strip_nulls())),
            "jsonb_pretty($1)" => Ok(Some(json.pretty())),
            "$1::jsonb || $2::jsonb" => self.show_json(json.concat(&self.json(1)?)),
            "$1::jsonb @> $2::jsonb" => self.show_bool(json.contains(&self.json(1)?)),
            "$1::jsonb < $2::jsonb" => self.show_bool(json.cmp_sql(&self.json(1)?).is_lt()),
            "$1::jsonb = $2::jsonb" => self.show_bool(json.cmp_sql(&self.json(1)?).is_eq()),
            other => panic!("no operation for {other}"),
        }
    }
}

#[test]
fn operations_answer_as_postgresql_does() {
    let mut wrong = Vec::new();
    let rows = golden::rows(include_str!("golden/operations.tsv"));
    assert!(rows.len() > 1_000);
    for row in &rows {
        let text = |index: usize| row[index].as_deref().unwrap_or("");
        let question =
            Question { template: text(0), arguments: [text(1), text(2), text(3)], context: context() };
        let found = match question.answer() {
            Ok(found) => found,
            Err(error) => Some(format!("!{} {}", error.code(), error.message())),
        };
        if found != row[4] {
            wrong.push(format!(
                "{} {:?}\n    expected {:?}\n    found    {found:?}",
                text(0),
                question.arguments,
                row[4]
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
