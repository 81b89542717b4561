//! Errors: one code enum for all crates, one error type for all doors.
//!
//! Invariants:
//! - A code exists because some caller can act on it; it is named after the SQLSTATE that PostgreSQL 15 answers.
//! - `message` is a lower-case fragment without a full stop; `detail` and `hint` are sentences; none of them holds a
//!   secret or a payload beyond what PostgreSQL shows.
//! - `source` is for the log and never reaches a client.
//!
//! Not here: how a code looks on a wire (each door has its own total match).

use std::{error, fmt};

/// What went wrong, one variant per SQLSTATE (PostgreSQL 15, appendix A).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Code {
    /// `00000`: no error; the code of notices that are not warnings.
    SuccessfulCompletion,
    /// `01000`: something the client should know.
    Warning,
    /// `08P01`: the peer broke the wire protocol.
    ProtocolViolation,
    /// `08006`: the connection broke.
    ConnectionFailure,
    /// `08007`: the command may have been applied; ask again with the same command id.
    UnknownOutcome,
    /// `0A000`: not built, or refused by design.
    FeatureNotSupported,
    /// `0B000`: a transaction cannot start here.
    InvalidTransactionInitiation,
    /// `20000`: no CASE branch matched.
    CaseNotFound,
    /// `21000`: more than one row where one was due.
    CardinalityViolation,
    /// `22001`: a text is longer than its type allows.
    StringDataRightTruncation,
    /// `22003`: a number does not fit its type.
    NumericValueOutOfRange,
    /// `22004`: null where none is allowed.
    NullValueNotAllowed,
    /// `22007`: text is not a date or time.
    InvalidDatetimeFormat,
    /// `22008`: a date or time is out of range.
    DatetimeFieldOverflow,
    /// `22009`: a time zone displacement is out of range.
    InvalidTimeZoneDisplacementValue,
    /// `22011`: a negative substring length.
    SubstringError,
    /// `22012`: division by zero.
    DivisionByZero,
    /// `2201E`: logarithm of zero or a negative number.
    InvalidArgumentForLogarithm,
    /// `2201F`: power outside its domain.
    InvalidArgumentForPowerFunction,
    /// `2201G`: width_bucket outside its domain.
    InvalidArgumentForWidthBucketFunction,
    /// `2201W`: a negative LIMIT.
    InvalidRowCountInLimitClause,
    /// `2201X`: a negative OFFSET.
    InvalidRowCountInResultOffsetClause,
    /// `22021`: bytes that are not valid in the encoding.
    CharacterNotInRepertoire,
    /// `22022`: a value does not fit its indicator.
    IndicatorOverflow,
    /// `22023`: a parameter has a value it cannot have.
    InvalidParameterValue,
    /// `22015`: an interval field is out of range.
    IntervalFieldOverflow,
    /// `22019`: an escape that is not one character.
    InvalidEscapeCharacter,
    /// `22025`: an escape at the end of a pattern.
    InvalidEscapeSequence,
    /// `22026`: bit strings of different length.
    StringDataLengthMismatch,
    /// `2201B`: a regular expression that does not parse.
    InvalidRegularExpression,
    /// `2202E`: a subscript out of place.
    ArraySubscriptError,
    /// `22P02`: text is not a value of its type.
    InvalidTextRepresentation,
    /// `22P03`: bytes are not a value of their type.
    InvalidBinaryRepresentation,
    /// `22P04`: COPY input is malformed.
    BadCopyFileFormat,
    /// `22P05`: a character the encoding does not have.
    UntranslatableCharacter,
    /// `22030`: a JSON key twice.
    DuplicateJsonObjectKeyValue,
    /// `22032`: text is not JSON.
    InvalidJsonText,
    /// `22033`: a subscript of a JSON path that no array has.
    InvalidSqlJsonSubscript,
    /// `22036`: a JSON path wants a number.
    NonNumericSqlJsonItem,
    /// `22038`: a JSON path wants one item.
    SingletonSqlJsonItemRequired,
    /// `22039`: a JSON path wants an array.
    SqlJsonArrayNotFound,
    /// `2203A`: a JSON path wants a key that is not there.
    SqlJsonMemberNotFound,
    /// `2203B`: a JSON path wants numbers.
    SqlJsonNumberNotFound,
    /// `2203C`: a JSON path wants an object.
    SqlJsonObjectNotFound,
    /// `2200H`: a sequence reached its end.
    SequenceGeneratorLimitExceeded,
    /// `23502`: null in a NOT NULL column.
    NotNullViolation,
    /// `23503`: a foreign key without its parent.
    ForeignKeyViolation,
    /// `23505`: a unique key is taken.
    UniqueViolation,
    /// `23514`: a CHECK constraint failed.
    CheckViolation,
    /// `23001`: a row is still referred to.
    RestrictViolation,
    /// `24000`: the cursor is not where the statement needs it.
    InvalidCursorState,
    /// `25001`: not allowed inside a transaction block.
    ActiveSqlTransaction,
    /// `25006`: a write in a read-only transaction.
    ReadOnlySqlTransaction,
    /// `25P01`: there is no transaction in progress.
    NoActiveSqlTransaction,
    /// `25P02`: the transaction is aborted; only ROLLBACK is possible.
    InFailedSqlTransaction,
    /// `25P03`: idle in a transaction for too long.
    IdleInTransactionSessionTimeout,
    /// `26000`: no such prepared statement.
    InvalidSqlStatementName,
    /// `28000`: who is this?.
    InvalidAuthorizationSpecification,
    /// `28P01`: password authentication failed.
    InvalidPassword,
    /// `0LP01`: a grant that cannot be.
    InvalidGrantOperation,
    /// `0P000`: no such role here.
    InvalidRoleSpecification,
    /// `2BP01`: other objects depend on it.
    DependentObjectsStillExist,
    /// `34000`: no such cursor or portal.
    InvalidCursorName,
    /// `3B001`: no such savepoint.
    InvalidSavepointSpecification,
    /// `3D000`: no such database.
    InvalidCatalogName,
    /// `3F000`: no such schema.
    InvalidSchemaName,
    /// `40001`: concurrent changes; run the transaction again.
    SerializationFailure,
    /// `40P01`: transactions wait for each other.
    DeadlockDetected,
    /// `42601`: the text is not SQL.
    SyntaxError,
    /// `42501`: permission denied.
    InsufficientPrivilege,
    /// `42846`: no cast between the types.
    CannotCoerce,
    /// `42803`: a column is neither grouped nor aggregated.
    GroupingError,
    /// `42P20`: a window function out of place.
    WindowingError,
    /// `42P19`: a recursive query of a shape that cannot be run.
    InvalidRecursion,
    /// `42830`: a foreign key that does not fit.
    InvalidForeignKey,
    /// `42602`: a name that is not one.
    InvalidName,
    /// `42622`: a name over 63 bytes.
    NameTooLong,
    /// `42939`: a reserved name.
    ReservedName,
    /// `42804`: types do not fit.
    DatatypeMismatch,
    /// `42P18`: the type of a parameter cannot be told.
    IndeterminateDatatype,
    /// `42P21`: collations differ.
    CollationMismatch,
    /// `42P22`: the collation cannot be told.
    IndeterminateCollation,
    /// `42809`: an object of another kind.
    WrongObjectType,
    /// `428C9`: a value for a column that is generated always.
    GeneratedAlways,
    /// `42703`: no such column.
    UndefinedColumn,
    /// `42883`: no such function or operator.
    UndefinedFunction,
    /// `42P01`: no such table.
    UndefinedTable,
    /// `42P02`: no such parameter.
    UndefinedParameter,
    /// `42704`: no such object.
    UndefinedObject,
    /// `42701`: a column twice.
    DuplicateColumn,
    /// `42P03`: the cursor exists.
    DuplicateCursor,
    /// `42P04`: the database exists.
    DuplicateDatabase,
    /// `42723`: the function exists.
    DuplicateFunction,
    /// `42P05`: the prepared statement exists.
    DuplicatePreparedStatement,
    /// `42P06`: the schema exists.
    DuplicateSchema,
    /// `42P07`: the relation exists.
    DuplicateTable,
    /// `42712`: a name twice in FROM.
    DuplicateAlias,
    /// `42710`: the object exists.
    DuplicateObject,
    /// `42702`: a column name that could be several.
    AmbiguousColumn,
    /// `42725`: a function or operator that could be several.
    AmbiguousFunction,
    /// `42P08`: a parameter of several types.
    AmbiguousParameter,
    /// `42P10`: a column reference that cannot be used here.
    InvalidColumnReference,
    /// `42611`: a column that cannot be so.
    InvalidColumnDefinition,
    /// `42P11`: a cursor that cannot be so.
    InvalidCursorDefinition,
    /// `42P12`: a database that cannot be so.
    InvalidDatabaseDefinition,
    /// `42P13`: a function that cannot be so.
    InvalidFunctionDefinition,
    /// `42P14`: a statement that cannot be prepared.
    InvalidPreparedStatementDefinition,
    /// `42P15`: a schema that cannot be so.
    InvalidSchemaDefinition,
    /// `42P16`: a table that cannot be so.
    InvalidTableDefinition,
    /// `42P17`: an object that cannot be so.
    InvalidObjectDefinition,
    /// `44000`: a row outside its view.
    WithCheckOptionViolation,
    /// `53000`: out of some resource.
    InsufficientResources,
    /// `53100`: the disk is full.
    DiskFull,
    /// `53200`: the memory budget is used up.
    OutOfMemory,
    /// `53300`: no room for another connection.
    TooManyConnections,
    /// `53400`: a configured limit is reached.
    ConfigurationLimitExceeded,
    /// `54000`: larger than the program allows.
    ProgramLimitExceeded,
    /// `54001`: nested too deeply.
    StatementTooComplex,
    /// `54011`: too many columns.
    TooManyColumns,
    /// `54023`: too many arguments.
    TooManyArguments,
    /// `55000`: the object is not in the state for this.
    ObjectNotInPrerequisiteState,
    /// `55006`: the object is in use.
    ObjectInUse,
    /// `55P02`: the parameter cannot be changed now.
    CantChangeRuntimeParam,
    /// `55P03`: the lock is taken.
    LockNotAvailable,
    /// `57000`: an operator stopped it.
    OperatorIntervention,
    /// `57014`: the statement was cancelled.
    QueryCanceled,
    /// `57P01`: the server is stopping.
    AdminShutdown,
    /// `57P02`: the server crashed.
    CrashShutdown,
    /// `57P03`: not serving yet.
    CannotConnectNow,
    /// `57P05`: the session was idle for too long.
    IdleSessionTimeout,
    /// `58000`: the system below failed.
    SystemError,
    /// `58030`: input or output failed.
    IoError,
    /// `72000`: the read point is gone.
    SnapshotTooOld,
    /// `F0000`: the configuration is wrong.
    ConfigFileError,
    /// `F0001`: another process holds the directory.
    LockFileExists,
    /// `XX000`: a bug.
    InternalError,
    /// `XX001`: stored bytes are damaged.
    DataCorrupted,
    /// `XX002`: an index is damaged.
    IndexCorrupted,
}

impl Code {
    /// Every code, in the order of declaration.
    pub const ALL: &'static [Self] = &[
        Self::SuccessfulCompletion,
        Self::Warning,
        Self::ProtocolViolation,
        Self::ConnectionFailure,
        Self::UnknownOutcome,
        Self::FeatureNotSupported,
        Self::InvalidTransactionInitiation,
        Self::CaseNotFound,
        Self::CardinalityViolation,
        Self::StringDataRightTruncation,
        Self::NumericValueOutOfRange,
        Self::NullValueNotAllowed,
        Self::InvalidDatetimeFormat,
        Self::DatetimeFieldOverflow,
        Self::InvalidTimeZoneDisplacementValue,
        Self::SubstringError,
        Self::DivisionByZero,
        Self::InvalidArgumentForLogarithm,
        Self::InvalidArgumentForPowerFunction,
        Self::InvalidArgumentForWidthBucketFunction,
        Self::InvalidRowCountInLimitClause,
        Self::InvalidRowCountInResultOffsetClause,
        Self::CharacterNotInRepertoire,
        Self::IndicatorOverflow,
        Self::InvalidParameterValue,
        Self::IntervalFieldOverflow,
        Self::InvalidEscapeCharacter,
        Self::InvalidEscapeSequence,
        Self::StringDataLengthMismatch,
        Self::InvalidRegularExpression,
        Self::ArraySubscriptError,
        Self::InvalidTextRepresentation,
        Self::InvalidBinaryRepresentation,
        Self::BadCopyFileFormat,
        Self::UntranslatableCharacter,
        Self::DuplicateJsonObjectKeyValue,
        Self::InvalidJsonText,
        Self::InvalidSqlJsonSubscript,
        Self::NonNumericSqlJsonItem,
        Self::SingletonSqlJsonItemRequired,
        Self::SqlJsonArrayNotFound,
        Self::SqlJsonMemberNotFound,
        Self::SqlJsonNumberNotFound,
        Self::SqlJsonObjectNotFound,
        Self::SequenceGeneratorLimitExceeded,
        Self::NotNullViolation,
        Self::ForeignKeyViolation,
        Self::UniqueViolation,
        Self::CheckViolation,
        Self::RestrictViolation,
        Self::InvalidCursorState,
        Self::ActiveSqlTransaction,
        Self::ReadOnlySqlTransaction,
        Self::NoActiveSqlTransaction,
        Self::InFailedSqlTransaction,
        Self::IdleInTransactionSessionTimeout,
        Self::InvalidSqlStatementName,
        Self::InvalidAuthorizationSpecification,
        Self::InvalidPassword,
        Self::InvalidGrantOperation,
        Self::InvalidRoleSpecification,
        Self::DependentObjectsStillExist,
        Self::InvalidCursorName,
        Self::InvalidSavepointSpecification,
        Self::InvalidCatalogName,
        Self::InvalidSchemaName,
        Self::SerializationFailure,
        Self::DeadlockDetected,
        Self::SyntaxError,
        Self::InsufficientPrivilege,
        Self::CannotCoerce,
        Self::GroupingError,
        Self::WindowingError,
        Self::InvalidRecursion,
        Self::InvalidForeignKey,
        Self::InvalidName,
        Self::NameTooLong,
        Self::ReservedName,
        Self::DatatypeMismatch,
        Self::IndeterminateDatatype,
        Self::CollationMismatch,
        Self::IndeterminateCollation,
        Self::WrongObjectType,
        Self::GeneratedAlways,
        Self::UndefinedColumn,
        Self::UndefinedFunction,
        Self::UndefinedTable,
        Self::UndefinedParameter,
        Self::UndefinedObject,
        Self::DuplicateColumn,
        Self::DuplicateCursor,
        Self::DuplicateDatabase,
        Self::DuplicateFunction,
        Self::DuplicatePreparedStatement,
        Self::DuplicateSchema,
        Self::DuplicateTable,
        Self::DuplicateAlias,
        Self::DuplicateObject,
        Self::AmbiguousColumn,
        Self::AmbiguousFunction,
        Self::AmbiguousParameter,
        Self::InvalidColumnReference,
        Self::InvalidColumnDefinition,
        Self::InvalidCursorDefinition,
        Self::InvalidDatabaseDefinition,
        Self::InvalidFunctionDefinition,
        Self::InvalidPreparedStatementDefinition,
        Self::InvalidSchemaDefinition,
        Self::InvalidTableDefinition,
        Self::InvalidObjectDefinition,
        Self::WithCheckOptionViolation,
        Self::InsufficientResources,
        Self::DiskFull,
        Self::OutOfMemory,
        Self::TooManyConnections,
        Self::ConfigurationLimitExceeded,
        Self::ProgramLimitExceeded,
        Self::StatementTooComplex,
        Self::TooManyColumns,
        Self::TooManyArguments,
        Self::ObjectNotInPrerequisiteState,
        Self::ObjectInUse,
        Self::CantChangeRuntimeParam,
        Self::LockNotAvailable,
        Self::OperatorIntervention,
        Self::QueryCanceled,
        Self::AdminShutdown,
        Self::CrashShutdown,
        Self::CannotConnectNow,
        Self::IdleSessionTimeout,
        Self::SystemError,
        Self::IoError,
        Self::SnapshotTooOld,
        Self::ConfigFileError,
        Self::LockFileExists,
        Self::InternalError,
        Self::DataCorrupted,
        Self::IndexCorrupted,
    ];

    /// The five characters of the SQLSTATE.
    pub fn sqlstate(self) -> &'static str {
        match self {
            Self::SuccessfulCompletion => "00000",
            Self::Warning => "01000",
            Self::ProtocolViolation => "08P01",
            Self::ConnectionFailure => "08006",
            Self::UnknownOutcome => "08007",
            Self::FeatureNotSupported => "0A000",
            Self::InvalidTransactionInitiation => "0B000",
            Self::CaseNotFound => "20000",
            Self::CardinalityViolation => "21000",
            Self::StringDataRightTruncation => "22001",
            Self::NumericValueOutOfRange => "22003",
            Self::NullValueNotAllowed => "22004",
            Self::InvalidDatetimeFormat => "22007",
            Self::DatetimeFieldOverflow => "22008",
            Self::InvalidTimeZoneDisplacementValue => "22009",
            Self::SubstringError => "22011",
            Self::DivisionByZero => "22012",
            Self::InvalidArgumentForLogarithm => "2201E",
            Self::InvalidArgumentForPowerFunction => "2201F",
            Self::InvalidArgumentForWidthBucketFunction => "2201G",
            Self::InvalidRowCountInLimitClause => "2201W",
            Self::InvalidRowCountInResultOffsetClause => "2201X",
            Self::CharacterNotInRepertoire => "22021",
            Self::IndicatorOverflow => "22022",
            Self::InvalidParameterValue => "22023",
            Self::IntervalFieldOverflow => "22015",
            Self::InvalidEscapeCharacter => "22019",
            Self::InvalidEscapeSequence => "22025",
            Self::StringDataLengthMismatch => "22026",
            Self::InvalidRegularExpression => "2201B",
            Self::ArraySubscriptError => "2202E",
            Self::InvalidTextRepresentation => "22P02",
            Self::InvalidBinaryRepresentation => "22P03",
            Self::BadCopyFileFormat => "22P04",
            Self::UntranslatableCharacter => "22P05",
            Self::DuplicateJsonObjectKeyValue => "22030",
            Self::InvalidJsonText => "22032",
            Self::InvalidSqlJsonSubscript => "22033",
            Self::NonNumericSqlJsonItem => "22036",
            Self::SingletonSqlJsonItemRequired => "22038",
            Self::SqlJsonArrayNotFound => "22039",
            Self::SqlJsonMemberNotFound => "2203A",
            Self::SqlJsonNumberNotFound => "2203B",
            Self::SqlJsonObjectNotFound => "2203C",
            Self::SequenceGeneratorLimitExceeded => "2200H",
            Self::NotNullViolation => "23502",
            Self::ForeignKeyViolation => "23503",
            Self::UniqueViolation => "23505",
            Self::CheckViolation => "23514",
            Self::RestrictViolation => "23001",
            Self::InvalidCursorState => "24000",
            Self::ActiveSqlTransaction => "25001",
            Self::ReadOnlySqlTransaction => "25006",
            Self::NoActiveSqlTransaction => "25P01",
            Self::InFailedSqlTransaction => "25P02",
            Self::IdleInTransactionSessionTimeout => "25P03",
            Self::InvalidSqlStatementName => "26000",
            Self::InvalidAuthorizationSpecification => "28000",
            Self::InvalidPassword => "28P01",
            Self::InvalidGrantOperation => "0LP01",
            Self::InvalidRoleSpecification => "0P000",
            Self::DependentObjectsStillExist => "2BP01",
            Self::InvalidCursorName => "34000",
            Self::InvalidSavepointSpecification => "3B001",
            Self::InvalidCatalogName => "3D000",
            Self::InvalidSchemaName => "3F000",
            Self::SerializationFailure => "40001",
            Self::DeadlockDetected => "40P01",
            Self::SyntaxError => "42601",
            Self::InsufficientPrivilege => "42501",
            Self::CannotCoerce => "42846",
            Self::GroupingError => "42803",
            Self::WindowingError => "42P20",
            Self::InvalidRecursion => "42P19",
            Self::InvalidForeignKey => "42830",
            Self::InvalidName => "42602",
            Self::NameTooLong => "42622",
            Self::ReservedName => "42939",
            Self::DatatypeMismatch => "42804",
            Self::IndeterminateDatatype => "42P18",
            Self::CollationMismatch => "42P21",
            Self::IndeterminateCollation => "42P22",
            Self::WrongObjectType => "42809",
            Self::GeneratedAlways => "428C9",
            Self::UndefinedColumn => "42703",
            Self::UndefinedFunction => "42883",
            Self::UndefinedTable => "42P01",
            Self::UndefinedParameter => "42P02",
            Self::UndefinedObject => "42704",
            Self::DuplicateColumn => "42701",
            Self::DuplicateCursor => "42P03",
            Self::DuplicateDatabase => "42P04",
            Self::DuplicateFunction => "42723",
            Self::DuplicatePreparedStatement => "42P05",
            Self::DuplicateSchema => "42P06",
            Self::DuplicateTable => "42P07",
            Self::DuplicateAlias => "42712",
            Self::DuplicateObject => "42710",
            Self::AmbiguousColumn => "42702",
            Self::AmbiguousFunction => "42725",
            Self::AmbiguousParameter => "42P08",
            Self::InvalidColumnReference => "42P10",
            Self::InvalidColumnDefinition => "42611",
            Self::InvalidCursorDefinition => "42P11",
            Self::InvalidDatabaseDefinition => "42P12",
            Self::InvalidFunctionDefinition => "42P13",
            Self::InvalidPreparedStatementDefinition => "42P14",
            Self::InvalidSchemaDefinition => "42P15",
            Self::InvalidTableDefinition => "42P16",
            Self::InvalidObjectDefinition => "42P17",
            Self::WithCheckOptionViolation => "44000",
            Self::InsufficientResources => "53000",
            Self::DiskFull => "53100",
            Self::OutOfMemory => "53200",
            Self::TooManyConnections => "53300",
            Self::ConfigurationLimitExceeded => "53400",
            Self::ProgramLimitExceeded => "54000",
            Self::StatementTooComplex => "54001",
            Self::TooManyColumns => "54011",
            Self::TooManyArguments => "54023",
            Self::ObjectNotInPrerequisiteState => "55000",
            Self::ObjectInUse => "55006",
            Self::CantChangeRuntimeParam => "55P02",
            Self::LockNotAvailable => "55P03",
            Self::OperatorIntervention => "57000",
            Self::QueryCanceled => "57014",
            Self::AdminShutdown => "57P01",
            Self::CrashShutdown => "57P02",
            Self::CannotConnectNow => "57P03",
            Self::IdleSessionTimeout => "57P05",
            Self::SystemError => "58000",
            Self::IoError => "58030",
            Self::SnapshotTooOld => "72000",
            Self::ConfigFileError => "F0000",
            Self::LockFileExists => "F0001",
            Self::InternalError => "XX000",
            Self::DataCorrupted => "XX001",
            Self::IndexCorrupted => "XX002",
        }
    }

    /// The code with this SQLSTATE.
    pub fn from_sqlstate(state: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.sqlstate() == state)
    }

    /// True if the same request may succeed when it is simply sent again.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::SerializationFailure
                | Self::DeadlockDetected
                | Self::LockNotAvailable
                | Self::CannotConnectNow
                | Self::TooManyConnections
                | Self::UnknownOutcome
                | Self::AdminShutdown
        )
    }

    /// True if the one who asked can mend it; false if the server or its machine is at fault.
    pub fn is_user_fault(self) -> bool {
        let class = &self.sqlstate()[..2];
        !matches!(class, "53" | "57" | "58" | "XX" | "F0" | "08")
    }
}

/// The result of what can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something failed, in the fields the PostgreSQL protocol has for it.
#[derive(Clone)]
pub struct Error(Box<Fields>);

#[derive(Clone, Debug)]
struct Fields {
    code: Code,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    position: Option<u32>,
    context: Option<String>,
    object: Object,
    source: Option<std::sync::Arc<dyn error::Error + Send + Sync>>,
}

/// The database object an error is about, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Schema name.
    pub schema: Option<String>,
    /// Table name.
    pub table: Option<String>,
    /// Column name.
    pub column: Option<String>,
    /// Data type name.
    pub data_type: Option<String>,
    /// Constraint name.
    pub constraint: Option<String>,
}

impl Error {
    /// An error with its primary message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Fields {
            code,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            context: None,
            object: Object::default(),
            source: None,
        }))
    }

    /// `0A000`: what this server does not do, with what to do instead.
    pub fn unsupported(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::FeatureNotSupported, what).with_hint(hint)
    }

    /// `XX000`: a bug of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::InternalError, message)
    }

    /// Adds the detail sentence.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds the hint sentence.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the place in the statement's text: characters, 1-based. A place that is already known stays.
    #[must_use]
    pub fn with_position(mut self, position: u32) -> Self {
        self.0.position.get_or_insert(position);
        self
    }

    /// Adds where it happened, such as `COPY t, line 3`.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<String>) -> Self {
        self.0.context = Some(context.into());
        self
    }

    /// Adds the object it is about.
    #[must_use]
    pub fn with_object(mut self, object: Object) -> Self {
        self.0.object = object;
        self
    }

    /// Adds the cause, which only the log shows.
    #[must_use]
    pub fn with_source(mut self, source: impl error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(std::sync::Arc::new(source));
        self
    }

    /// What went wrong.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The primary message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The detail sentence.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The hint sentence.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The place in the statement: characters, 1-based.
    pub fn position(&self) -> Option<u32> {
        self.0.position
    }

    /// Where it happened.
    pub fn context(&self) -> Option<&str> {
        self.0.context.as_deref()
    }

    /// The object it is about.
    pub fn object(&self) -> &Object {
        &self.0.object
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}",
            self.0.code.sqlstate(),
            self.0.message,
            self.0.detail.as_deref().unwrap_or("-")
        )
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as &(dyn error::Error + 'static))
    }
}

impl From<crate::value::ValueError> for Error {
    fn from(refused: crate::value::ValueError) -> Self {
        let code = Code::from_sqlstate(refused.code()).expect("every kind of value error has a code here");
        let mut error = Self::new(code, refused.message());
        error.0.detail = refused.detail().map(str::to_owned);
        error.0.hint = refused.hint().map(str::to_owned);
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sqlstate_is_five_characters_and_names_one_code() {
        for code in Code::ALL {
            assert_eq!(code.sqlstate().len(), 5);
            assert_eq!(Code::from_sqlstate(code.sqlstate()), Some(*code));
        }
    }

    #[test]
    fn the_first_known_position_stays() {
        let error = Error::new(Code::SyntaxError, "syntax error").with_position(3).with_position(9);
        assert_eq!(error.position(), Some(3));
    }
}
