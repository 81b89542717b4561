//! Relations of PostgreSQL for things that do not exist here: always empty, but there, so that clients' joins work.

use model::{Type, types::Scalar as Element};

use super::{Relation, rows};

const O: Type = Type::Oid;
const N: Type = Type::Name;
const C: Type = Type::Char;
const B: Type = Type::Bool;
const I2: Type = Type::Int2;
const I4: Type = Type::Int4;
const T: Type = Type::Text;
const TEXTS: Type = Type::Array(Element::Text);
const TREE: Type = Type::PgNodeTree;

const fn empty(name: &'static str, oid: u32, columns: &'static [(&'static str, Type)]) -> Relation {
    Relation { schema: "pg_catalog", name, oid, columns, rows: |_| rows(Vec::new()) }
}

#[rustfmt::skip]
pub(super) const RELATIONS: &[Relation] = &[
    empty("pg_trigger", 2620, &[("oid", O), ("tgrelid", O), ("tgparentid", O), ("tgname", N), ("tgfoid", O), ("tgtype", I2), ("tgenabled", C), ("tgisinternal", B), ("tgconstrrelid", O), ("tgconstrindid", O), ("tgconstraint", O), ("tgdeferrable", B), ("tginitdeferred", B), ("tgnargs", I2), ("tgattr", Type::Int2Vector), ("tgargs", Type::Bytea), ("tgqual", TREE), ("tgoldtable", N), ("tgnewtable", N)]),
    empty("pg_policy", 3256, &[("oid", O), ("polname", N), ("polrelid", O), ("polcmd", C), ("polpermissive", B), ("polroles", Type::Array(Element::Oid)), ("polqual", TREE), ("polwithcheck", TREE)]),
    empty("pg_inherits", 2611, &[("inhrelid", O), ("inhparent", O), ("inhseqno", I4), ("inhdetachpending", B)]),
    empty("pg_rewrite", 2618, &[("oid", O), ("rulename", N), ("ev_class", O), ("ev_type", C), ("ev_enabled", C), ("is_instead", B), ("ev_qual", TREE), ("ev_action", TREE)]),
    empty("pg_partitioned_table", 3350, &[("partrelid", O), ("partstrat", C), ("partnatts", I2), ("partdefid", O), ("partattrs", Type::Int2Vector), ("partclass", Type::OidVector), ("partcollation", Type::OidVector), ("partexprs", TREE)]),
    empty("pg_statistic_ext", 3381, &[("oid", O), ("stxrelid", O), ("stxname", N), ("stxnamespace", O), ("stxowner", O), ("stxstattarget", I4), ("stxkeys", Type::Int2Vector), ("stxkind", TEXTS), ("stxexprs", TREE)]),
    empty("pg_publication", 6104, &[("oid", O), ("pubname", N), ("pubowner", O), ("puballtables", B), ("pubinsert", B), ("pubupdate", B), ("pubdelete", B), ("pubtruncate", B), ("pubviaroot", B)]),
    empty("pg_publication_rel", 6106, &[("oid", O), ("prpubid", O), ("prrelid", O), ("prqual", TREE), ("prattrs", Type::Int2Vector)]),
    empty("pg_publication_namespace", 6237, &[("oid", O), ("pnpubid", O), ("pnnspid", O)]),
    empty("pg_subscription", 6100, &[("oid", O), ("subdbid", O), ("subname", N), ("subowner", O), ("subenabled", B)]),
    empty("pg_foreign_table", 3118, &[("ftrelid", O), ("ftserver", O), ("ftoptions", TEXTS)]),
    empty("pg_foreign_server", 1417, &[("oid", O), ("srvname", N), ("srvowner", O), ("srvfdw", O), ("srvtype", T), ("srvversion", T), ("srvacl", TEXTS), ("srvoptions", TEXTS)]),
    empty("pg_foreign_data_wrapper", 2328, &[("oid", O), ("fdwname", N), ("fdwowner", O), ("fdwhandler", O), ("fdwvalidator", O), ("fdwacl", TEXTS), ("fdwoptions", TEXTS)]),
    empty("pg_event_trigger", 3466, &[("oid", O), ("evtname", N), ("evtevent", N), ("evtowner", O), ("evtfoid", O), ("evtenabled", C), ("evttags", TEXTS)]),
    empty("pg_enum", 3501, &[("oid", O), ("enumtypid", O), ("enumsortorder", Type::Float4), ("enumlabel", N)]),
    empty("pg_range", 3541, &[("rngtypid", O), ("rngsubtype", O), ("rngmultitypid", O), ("rngcollation", O), ("rngsubopc", O), ("rngcanonical", Type::Regproc), ("rngsubdiff", Type::Regproc)]),
    empty("pg_aggregate", 2600, &[("aggfnoid", Type::Regproc), ("aggkind", C), ("aggnumdirectargs", I2)]),
    empty("pg_conversion", 2607, &[("oid", O), ("conname", N), ("connamespace", O), ("conowner", O), ("conforencoding", I4), ("contoencoding", I4), ("conproc", Type::Regproc), ("condefault", B)]),
    empty("pg_shdescription", 2396, &[("objoid", O), ("classoid", O), ("description", T)]),
    empty("pg_db_role_setting", 2964, &[("setdatabase", O), ("setrole", O), ("setconfig", TEXTS)]),
    empty("pg_default_acl", 826, &[("oid", O), ("defaclrole", O), ("defaclnamespace", O), ("defaclobjtype", C), ("defaclacl", TEXTS)]),
    empty("pg_seclabels", 12040, &[("objoid", O), ("classoid", O), ("objsubid", I4), ("objtype", T), ("objnamespace", O), ("objname", T), ("provider", T), ("label", T)]),
    empty("pg_prepared_xacts", 12041, &[("transaction", Type::Xid), ("gid", T), ("prepared", Type::Timestamptz), ("owner", N), ("database", N)]),
    empty("pg_locks", 12042, &[("locktype", T), ("database", O), ("relation", O), ("pid", I4), ("mode", T), ("granted", B)]),
    empty("pg_ts_config", 3602, &[("oid", O), ("cfgname", N), ("cfgnamespace", O), ("cfgowner", O), ("cfgparser", O)]),
    empty("pg_ts_dict", 3600, &[("oid", O), ("dictname", N), ("dictnamespace", O), ("dictowner", O), ("dicttemplate", O), ("dictinitoption", T)]),
    empty("pg_largeobject_metadata", 2995, &[("oid", O), ("lomowner", O), ("lomacl", TEXTS)]),
];
