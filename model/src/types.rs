//! Types: what a column, parameter or expression may hold, as PostgreSQL names and numbers them.
//!
//! One table row per scalar type holds everything fixed about it: OID, OID of its array, catalog name,
//! name as `format_type` prints it, length, category, preferred flag.
//!
//! Invariants:
//! - `Type` is `Copy` and two bytes; a modifier (`varchar(20)`) travels beside it as a `Typmod`, never inside.
//! - OIDs of built-in types are PostgreSQL's; only `vector` has one of our own, below the user range.
//!
//! Not here: how values of a type are written or read (`value::text_io`, `value::binary`), casts (`sql`).

use std::fmt;

mod names;

use crate::value::ValueError;

/// Declares `Scalar` and `Type` from one table, so that neither list can miss a type the other has.
/// A macro, because the two enums must stay equal by construction.
macro_rules! scalar_types {
    ($( $(#[$doc:meta])* $variant:ident = $oid:literal, $array:literal, $name:literal, $display:literal,
        $len:literal, $category:ident, $preferred:literal; )+) => {
        /// A type that is not an array; the element type of `Type::Array`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Scalar { $( $(#[$doc])* $variant, )+ }

        /// The type of a value, without its modifier.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Type {
            $( $(#[$doc])* $variant, )+
            /// An array of any number of dimensions of a scalar type.
            Array(Scalar),
        }

        impl Scalar {
            /// Every scalar type, in the order of the table.
            pub const ALL: &'static [Scalar] = &[ $( Scalar::$variant, )+ ];

            const fn facts(self) -> &'static Facts {
                match self {
                    $( Scalar::$variant => &Facts {
                        oid: $oid, array_oid: $array, name: $name, display: $display, len: $len,
                        category: TypeCategory::$category, preferred: $preferred,
                    }, )+
                }
            }

            /// The same type as a `Type`.
            pub const fn as_type(self) -> Type {
                match self { $( Scalar::$variant => Type::$variant, )+ }
            }
        }

        impl Type {
            /// The scalar type itself, or `None` for an array.
            pub const fn scalar(self) -> Option<Scalar> {
                match self {
                    $( Type::$variant => Some(Scalar::$variant), )+
                    Type::Array(_) => None,
                }
            }
        }
    };
}

struct Facts {
    oid: u32,
    array_oid: u32,
    name: &'static str,
    display: &'static str,
    len: i16,
    category: TypeCategory,
    preferred: bool,
}

scalar_types! {
    /// `boolean`.
    Bool = 16, 1000, "bool", "boolean", 1, Boolean, true;
    /// `bytea`.
    Bytea = 17, 1001, "bytea", "bytea", -1, User, false;
    /// `"char"`, one byte.
    Char = 18, 1002, "char", "\"char\"", 1, Internal, false;
    /// `name`, an identifier of at most 63 bytes.
    Name = 19, 1003, "name", "name", 64, String, false;
    /// `bigint`.
    Int8 = 20, 1016, "int8", "bigint", 8, Numeric, false;
    /// `smallint`.
    Int2 = 21, 1005, "int2", "smallint", 2, Numeric, false;
    /// `int2vector`, an array of `int2` with its own text form.
    Int2Vector = 22, 1006, "int2vector", "int2vector", -1, Array, false;
    /// `integer`.
    Int4 = 23, 1007, "int4", "integer", 4, Numeric, false;
    /// `regproc`, a function's OID.
    Regproc = 24, 1008, "regproc", "regproc", 4, Numeric, false;
    /// `text`.
    Text = 25, 1009, "text", "text", -1, String, true;
    /// `oid`.
    Oid = 26, 1028, "oid", "oid", 4, Numeric, true;
    /// `tid`, a tuple identifier.
    Tid = 27, 1010, "tid", "tid", 6, User, false;
    /// `xid`.
    Xid = 28, 1011, "xid", "xid", 4, User, false;
    /// `cid`.
    Cid = 29, 1012, "cid", "cid", 4, User, false;
    /// `oidvector`, an array of `oid` with its own text form.
    OidVector = 30, 1013, "oidvector", "oidvector", -1, Array, false;
    /// `json`, kept as its text.
    Json = 114, 199, "json", "json", -1, User, false;
    /// `pg_node_tree`, a text in our catalogs.
    PgNodeTree = 194, 0, "pg_node_tree", "pg_node_tree", -1, Internal, false;
    /// `real`.
    Float4 = 700, 1021, "float4", "real", 4, Numeric, false;
    /// `double precision`.
    Float8 = 701, 1022, "float8", "double precision", 8, Numeric, true;
    /// The type of a literal before its context is known.
    Unknown = 705, 0, "unknown", "unknown", -2, Unknown, false;
    /// `character(n)`.
    Bpchar = 1042, 1014, "bpchar", "character", -1, String, false;
    /// `character varying(n)`.
    Varchar = 1043, 1015, "varchar", "character varying", -1, String, false;
    /// `date`.
    Date = 1082, 1182, "date", "date", 4, DateTime, false;
    /// `time without time zone`.
    Time = 1083, 1183, "time", "time without time zone", 8, DateTime, false;
    /// `timestamp without time zone`.
    Timestamp = 1114, 1115, "timestamp", "timestamp without time zone", 8, DateTime, false;
    /// `timestamp with time zone`.
    Timestamptz = 1184, 1185, "timestamptz", "timestamp with time zone", 8, DateTime, true;
    /// `interval`.
    Interval = 1186, 1187, "interval", "interval", 16, Timespan, true;
    /// `numeric`.
    Numeric = 1700, 1231, "numeric", "numeric", -1, Numeric, false;
    /// `regclass`, a relation's OID.
    Regclass = 2205, 2210, "regclass", "regclass", 4, Numeric, false;
    /// `regtype`, a type's OID.
    Regtype = 2206, 2211, "regtype", "regtype", 4, Numeric, false;
    /// An anonymous row.
    Record = 2249, 2287, "record", "record", -1, Pseudo, false;
    /// No value.
    Void = 2278, 0, "void", "void", 4, Pseudo, false;
    /// `uuid`.
    Uuid = 2950, 2951, "uuid", "uuid", 16, User, false;
    /// `jsonb`.
    Jsonb = 3802, 3807, "jsonb", "jsonb", -1, User, false;
    /// `regnamespace`, a schema's OID.
    Regnamespace = 4089, 4090, "regnamespace", "regnamespace", 4, Numeric, false;
    /// `regrole`, a role's OID.
    Regrole = 4096, 4097, "regrole", "regrole", 4, Numeric, false;
    /// `vector(n)`, single-precision numbers for similarity search.
    Vector = 16200, 16201, "vector", "vector", -1, User, false;
}

/// A type modifier as PostgreSQL stores it (`atttypmod`): -1 is none, `varchar(n)` is n + 4,
/// `numeric(p,s)` is `((p << 16) | (s & 0x7ff)) + 4`, `timestamp(p)` is p.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Typmod(pub i32);

impl Default for Typmod {
    fn default() -> Self {
        Self::NONE
    }
}

impl Typmod {
    /// No modifier.
    pub const NONE: Typmod = Typmod(-1);

    /// The modifier of `varchar(length)` or `character(length)`.
    pub const fn of_length(length: i32) -> Self {
        Typmod(length + 4)
    }

    /// The modifier of `numeric(precision, scale)`.
    pub const fn of_numeric(precision: u16, scale: i16) -> Self {
        Typmod((((precision as i32) << 16) | (scale as i32 & 0x7ff)) + 4)
    }

    /// The modifier of a time type with this many fractional digits; intervals need `of_interval`.
    pub const fn of_precision(digits: i32) -> Self {
        Typmod(digits)
    }

    /// The modifier of an interval with a field range (`interval::range` bits; 0x7fff is all) and fractional digits.
    pub const fn of_interval(range: u16, digits: u16) -> Self {
        Typmod(((range as i32) << 16) | digits as i32)
    }

    /// Whether there is no modifier.
    pub const fn is_none(self) -> bool {
        self.0 < 0
    }

    /// The length of `varchar(n)` or `character(n)`.
    pub const fn length(self) -> Option<usize> {
        if self.0 < 4 { None } else { Some((self.0 - 4) as usize) }
    }

    /// Precision and scale of `numeric(p, s)`; the scale may be negative.
    pub const fn numeric(self) -> Option<(u16, i16)> {
        if self.0 < 4 {
            return None;
        }
        let bits = self.0 - 4;
        let scale = ((bits & 0x7ff) ^ 1024) - 1024;
        Some((((bits >> 16) & 0xffff) as u16, scale as i16))
    }

    /// Fractional digits of a time, timestamp or interval modifier.
    pub const fn precision(self, of: Type) -> Option<u8> {
        if self.0 < 0 {
            return None;
        }
        match of {
            Type::Interval | Type::Array(Scalar::Interval) => {
                let digits = self.0 & 0xffff;
                if digits == 0xffff { None } else { Some(if digits > 6 { 6 } else { digits as u8 }) }
            }
            _ => Some(if self.0 > 6 { 6 } else { self.0 as u8 }),
        }
    }

    /// Field range bits of an interval modifier, if it restricts the fields.
    pub const fn interval_range(self) -> Option<u16> {
        if self.0 < 0 {
            return None;
        }
        let range = (self.0 >> 16) & 0x7fff;
        if range == 0x7fff { None } else { Some(range as u16) }
    }
}

/// PostgreSQL's `pg_type.typcategory`: guides which operator or function an expression means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TypeCategory {
    /// `A`.
    Array,
    /// `B`.
    Boolean,
    /// `D`.
    DateTime,
    /// `N`.
    Numeric,
    /// `P`.
    Pseudo,
    /// `S`.
    String,
    /// `T`.
    Timespan,
    /// `U`.
    User,
    /// `X`.
    Unknown,
    /// `Z`.
    Internal,
}

impl TypeCategory {
    /// The letter that `pg_type` shows.
    pub const fn letter(self) -> char {
        match self {
            TypeCategory::Array => 'A',
            TypeCategory::Boolean => 'B',
            TypeCategory::DateTime => 'D',
            TypeCategory::Numeric => 'N',
            TypeCategory::Pseudo => 'P',
            TypeCategory::String => 'S',
            TypeCategory::Timespan => 'T',
            TypeCategory::User => 'U',
            TypeCategory::Unknown => 'X',
            TypeCategory::Internal => 'Z',
        }
    }
}

impl Type {
    /// Every type: the scalars, then the arrays that have an OID.
    pub fn all() -> impl Iterator<Item = Type> {
        let scalars = Scalar::ALL.iter().map(|scalar| scalar.as_type());
        let arrays = Scalar::ALL.iter().filter(|scalar| scalar.facts().array_oid != 0);
        scalars.chain(arrays.map(|scalar| Type::Array(*scalar)))
    }

    const fn facts(self) -> &'static Facts {
        match self {
            Type::Array(element) => element.facts(),
            scalar => match scalar.scalar() {
                Some(scalar) => scalar.facts(),
                None => Scalar::Unknown.facts(),
            },
        }
    }

    /// The type's OID.
    pub const fn oid(self) -> u32 {
        match self {
            Type::Array(element) => element.facts().array_oid,
            _ => self.facts().oid,
        }
    }

    /// The type with this OID.
    pub fn from_oid(oid: u32) -> Option<Type> {
        if oid == 0 {
            return None;
        }
        for scalar in Scalar::ALL {
            let facts = scalar.facts();
            if facts.oid == oid {
                return Some(scalar.as_type());
            }
            if facts.array_oid == oid {
                return Some(Type::Array(*scalar));
            }
        }
        None
    }

    /// The name in `pg_type`: `int4`, `_int4`.
    pub fn catalog_name(self) -> String {
        match self {
            Type::Array(element) => format!("_{}", element.facts().name),
            _ => self.facts().name.to_owned(),
        }
    }

    /// `pg_type.typlen`: bytes of a fixed-width type, -1 for variable width, -2 for a C string.
    #[expect(clippy::len_without_is_empty, reason = "typlen is a width, not a count of members")]
    pub const fn len(self) -> i16 {
        match self {
            Type::Array(_) => -1,
            _ => self.facts().len,
        }
    }

    /// `pg_type.typcategory`.
    pub const fn category(self) -> TypeCategory {
        match self {
            Type::Array(_) => TypeCategory::Array,
            _ => self.facts().category,
        }
    }

    /// `pg_type.typispreferred`.
    pub const fn is_preferred(self) -> bool {
        match self {
            Type::Array(_) => false,
            _ => self.facts().preferred,
        }
    }

    /// What an array of this type holds; the vectors of the catalogs count as arrays.
    pub const fn element(self) -> Option<Type> {
        match self {
            Type::Array(element) => Some(element.as_type()),
            Type::Int2Vector => Some(Type::Int2),
            Type::OidVector => Some(Type::Oid),
            _ => None,
        }
    }

    /// The array type over this type; an array is its own (arrays nest by dimensions, as in PostgreSQL).
    pub const fn array(self) -> Option<Type> {
        match self {
            Type::Array(_) => Some(self),
            _ => match self.scalar() {
                Some(scalar) if scalar.facts().array_oid != 0 => Some(Type::Array(scalar)),
                _ => None,
            },
        }
    }

    /// Whether this is an array type.
    pub const fn is_array(self) -> bool {
        matches!(self, Type::Array(_))
    }

    /// Whether values of this type are kept as `Value::Text`.
    pub const fn is_text(self) -> bool {
        matches!(
            self,
            Type::Text
                | Type::Varchar
                | Type::Bpchar
                | Type::Name
                | Type::Char
                | Type::Unknown
                | Type::PgNodeTree
        )
    }

    /// Whether this is one of `smallint`, `integer`, `bigint`.
    pub const fn is_integer(self) -> bool {
        matches!(self, Type::Int2 | Type::Int4 | Type::Int8)
    }

    /// Whether values of this type are kept as `Value::Oid`.
    pub const fn is_oid(self) -> bool {
        matches!(
            self,
            Type::Oid
                | Type::Regclass
                | Type::Regtype
                | Type::Regproc
                | Type::Regnamespace
                | Type::Regrole
                | Type::Xid
                | Type::Cid
        )
    }

    /// The name with its modifier, as PostgreSQL's `format_type` prints it.
    pub fn name_with(self, typmod: Typmod) -> String {
        let (scalar, suffix) = match self {
            Type::Array(element) => (element.as_type(), "[]"),
            _ => (self, ""),
        };
        let name = match scalar {
            Type::Varchar => match typmod.length() {
                Some(length) => format!("character varying({length})"),
                None => "character varying".to_owned(),
            },
            Type::Bpchar => match typmod.length() {
                Some(length) => format!("character({length})"),
                None => "bpchar".to_owned(),
            },
            Type::Numeric => match typmod.numeric() {
                Some((precision, scale)) => format!("numeric({precision},{scale})"),
                None => "numeric".to_owned(),
            },
            Type::Time if !typmod.is_none() => format!("time({}) without time zone", typmod.0),
            Type::Timestamp if !typmod.is_none() => format!("timestamp({}) without time zone", typmod.0),
            Type::Timestamptz if !typmod.is_none() => format!("timestamp({}) with time zone", typmod.0),
            Type::Interval => names::interval_name(typmod),
            Type::Vector if !typmod.is_none() => format!("vector({})", typmod.0),
            _ => scalar.facts().display.to_owned(),
        };
        name + suffix
    }

    /// The name as in error messages: `integer`, `timestamp with time zone`; of an array, its element's. `Display`
    /// adds the brackets.
    pub fn display_name(self) -> &'static str {
        self.facts().display
    }

    /// Reads a type name with modifiers as SQL spells it: `int`, `numeric(10,2)`, `double precision`,
    /// `timestamp(3) with time zone`, `"char"`, `text[]`, `pg_catalog.int4`.
    pub fn parse(name: &str) -> Result<(Type, Typmod), ValueError> {
        names::parse_name(name)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Array(element) => write!(f, "{}[]", element.facts().display),
            _ => f.write_str(self.facts().display),
        }
    }
}

/// Bits of an interval's field range, `interval year to month` and the like.
pub mod interval_range {
    /// `MONTH`.
    pub const MONTH: u16 = 1 << 1;
    /// `YEAR`.
    pub const YEAR: u16 = 1 << 2;
    /// `DAY`.
    pub const DAY: u16 = 1 << 3;
    /// `HOUR`.
    pub const HOUR: u16 = 1 << 10;
    /// `MINUTE`.
    pub const MINUTE: u16 = 1 << 11;
    /// `SECOND`.
    pub const SECOND: u16 = 1 << 12;
    /// No restriction.
    pub const FULL: u16 = 0x7fff;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_two_bytes() {
        assert!(size_of::<Type>() <= 2);
    }

    #[test]
    fn every_oid_leads_back_to_its_type() {
        for of in Type::all().filter(|of| of.oid() != 0) {
            assert_eq!(Type::from_oid(of.oid()), Some(of));
        }
        assert_eq!(Type::from_oid(0), None);
        assert_eq!(Type::from_oid(1016), Some(Type::Array(Scalar::Int8)));
    }

    #[test]
    fn names_are_printed_as_format_type_does() {
        let cases = [
            ("int", "integer"),
            ("decimal(10, 2)", "numeric(10,2)"),
            ("numeric(5)", "numeric(5,0)"),
            ("numeric(3,-2)", "numeric(3,-2)"),
            ("VARCHAR(20)", "character varying(20)"),
            ("character varying", "character varying"),
            ("char", "character(1)"),
            ("bpchar", "bpchar"),
            ("\"char\"", "\"char\""),
            ("timestamptz(3)", "timestamp(3) with time zone"),
            ("timestamp (3) with time zone", "timestamp(3) with time zone"),
            ("time", "time without time zone"),
            ("double  precision", "double precision"),
            ("float(24)", "real"),
            ("pg_catalog.int8[]", "bigint[]"),
            ("_text", "text[]"),
            ("int array", "integer[]"),
            ("varchar(3)[][2]", "character varying(3)[]"),
            ("interval(2)", "interval(2)"),
            ("interval day to second(3)", "interval day to second(3)"),
            ("interval year to month", "interval year to month"),
        ];
        for (spelled, printed) in cases {
            let (of, typmod) = Type::parse(spelled).expect(spelled);
            assert_eq!(of.name_with(typmod), printed, "{spelled}");
        }
    }

    #[test]
    fn names_that_mean_nothing_are_refused() {
        for spelled in [
            "",
            "nope",
            "int(3)",
            "varchar(0)",
            "numeric(0)",
            "numeric(1,2,3)",
            "varchar(x)",
            "int[x]",
            "\"int",
        ] {
            assert!(Type::parse(spelled).is_err(), "{spelled}");
        }
    }
}
