//! From our codes to gRPC's: a total match.

use model::{Code, Error};
use sdk::convert;
use tonic::{Code as Grpc, Status};

/// A refusal as a status with all its fields.
pub fn refuse(error: &Error) -> Status {
    convert::status_of(error, status(error.code()))
}

/// The gRPC code of one of ours (google.rpc.Code).
pub fn status(code: Code) -> Grpc {
    match code {
        Code::SuccessfulCompletion | Code::Warning => Grpc::Ok,
        Code::ProtocolViolation
        | Code::CaseNotFound
        | Code::CardinalityViolation
        | Code::StringDataRightTruncation
        | Code::NumericValueOutOfRange
        | Code::NullValueNotAllowed
        | Code::InvalidDatetimeFormat
        | Code::DatetimeFieldOverflow
        | Code::InvalidTimeZoneDisplacementValue
        | Code::SubstringError
        | Code::DivisionByZero
        | Code::InvalidArgumentForLogarithm
        | Code::InvalidArgumentForPowerFunction
        | Code::InvalidArgumentForWidthBucketFunction
        | Code::InvalidRowCountInLimitClause
        | Code::InvalidRowCountInResultOffsetClause
        | Code::CharacterNotInRepertoire
        | Code::IndicatorOverflow
        | Code::InvalidParameterValue
        | Code::IntervalFieldOverflow
        | Code::InvalidEscapeCharacter
        | Code::InvalidEscapeSequence
        | Code::StringDataLengthMismatch
        | Code::InvalidRegularExpression
        | Code::ArraySubscriptError
        | Code::InvalidTextRepresentation
        | Code::InvalidBinaryRepresentation
        | Code::BadCopyFileFormat
        | Code::UntranslatableCharacter
        | Code::DuplicateJsonObjectKeyValue
        | Code::InvalidJsonText
        | Code::InvalidSqlJsonSubscript
        | Code::NonNumericSqlJsonItem
        | Code::SingletonSqlJsonItemRequired
        | Code::SqlJsonArrayNotFound
        | Code::SqlJsonMemberNotFound
        | Code::SqlJsonNumberNotFound
        | Code::SqlJsonObjectNotFound
        | Code::SequenceGeneratorLimitExceeded
        | Code::InvalidSqlStatementName
        | Code::InvalidGrantOperation
        | Code::InvalidRoleSpecification
        | Code::InvalidCursorName
        | Code::InvalidSavepointSpecification
        | Code::SyntaxError
        | Code::CannotCoerce
        | Code::GroupingError
        | Code::WindowingError
        | Code::InvalidRecursion
        | Code::InvalidForeignKey
        | Code::InvalidName
        | Code::NameTooLong
        | Code::ReservedName
        | Code::DatatypeMismatch
        | Code::IndeterminateDatatype
        | Code::CollationMismatch
        | Code::IndeterminateCollation
        | Code::WrongObjectType
        | Code::GeneratedAlways
        | Code::UndefinedParameter
        | Code::AmbiguousColumn
        | Code::AmbiguousFunction
        | Code::AmbiguousParameter
        | Code::InvalidColumnReference
        | Code::InvalidColumnDefinition
        | Code::InvalidCursorDefinition
        | Code::InvalidDatabaseDefinition
        | Code::InvalidFunctionDefinition
        | Code::InvalidPreparedStatementDefinition
        | Code::InvalidSchemaDefinition
        | Code::InvalidTableDefinition
        | Code::InvalidObjectDefinition => Grpc::InvalidArgument,
        Code::ConnectionFailure
        | Code::OperatorIntervention
        | Code::AdminShutdown
        | Code::CrashShutdown
        | Code::CannotConnectNow
        | Code::IdleSessionTimeout => Grpc::Unavailable,
        Code::UnknownOutcome => Grpc::Unknown,
        Code::FeatureNotSupported => Grpc::Unimplemented,
        Code::InvalidTransactionInitiation
        | Code::NotNullViolation
        | Code::ForeignKeyViolation
        | Code::CheckViolation
        | Code::RestrictViolation
        | Code::InvalidCursorState
        | Code::ActiveSqlTransaction
        | Code::ReadOnlySqlTransaction
        | Code::NoActiveSqlTransaction
        | Code::InFailedSqlTransaction
        | Code::IdleInTransactionSessionTimeout
        | Code::DependentObjectsStillExist
        | Code::WithCheckOptionViolation
        | Code::ObjectNotInPrerequisiteState
        | Code::ObjectInUse
        | Code::CantChangeRuntimeParam => Grpc::FailedPrecondition,
        Code::UniqueViolation
        | Code::DuplicateColumn
        | Code::DuplicateCursor
        | Code::DuplicateDatabase
        | Code::DuplicateFunction
        | Code::DuplicatePreparedStatement
        | Code::DuplicateSchema
        | Code::DuplicateTable
        | Code::DuplicateAlias
        | Code::DuplicateObject => Grpc::AlreadyExists,
        Code::InvalidAuthorizationSpecification | Code::InvalidPassword => Grpc::Unauthenticated,
        Code::InvalidCatalogName
        | Code::InvalidSchemaName
        | Code::UndefinedColumn
        | Code::UndefinedFunction
        | Code::UndefinedTable
        | Code::UndefinedObject => Grpc::NotFound,
        Code::SerializationFailure
        | Code::DeadlockDetected
        | Code::LockNotAvailable
        | Code::SnapshotTooOld => Grpc::Aborted,
        Code::InsufficientPrivilege => Grpc::PermissionDenied,
        Code::InsufficientResources
        | Code::DiskFull
        | Code::OutOfMemory
        | Code::TooManyConnections
        | Code::ConfigurationLimitExceeded
        | Code::ProgramLimitExceeded
        | Code::StatementTooComplex
        | Code::TooManyColumns
        | Code::TooManyArguments => Grpc::ResourceExhausted,
        Code::QueryCanceled => Grpc::Cancelled,
        Code::SystemError
        | Code::IoError
        | Code::ConfigFileError
        | Code::LockFileExists
        | Code::InternalError => Grpc::Internal,
        Code::DataCorrupted | Code::IndexCorrupted => Grpc::DataLoss,
    }
}
