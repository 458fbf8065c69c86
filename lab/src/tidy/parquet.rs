//! A tidy table as a Parquet file.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{Columns, Kind, Row, Value};
use crate::results::Results;

/// Returns a file with one group of rows.
pub(super) fn file(columns: Columns, rows: &[Row], results: &Results) -> Result<Vec<u8>> {
    let entries = [
        ("holdfast.schema", "holdfast.tables/1"),
        ("holdfast.experiment", &results.experiment),
        ("holdfast.version", &results.version),
        ("holdfast.command", &results.command),
    ];
    let entries = entries.map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned()));
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(entries.into()))
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema(columns)?, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (index, (_, kind)) in columns.iter().enumerate() {
        let column = group.next_column()?.expect("one for each of the schema");
        let values = rows.iter().map(|row| row[index].as_ref());
        match kind {
            Kind::Text => write::<ByteArrayType>(column, values, |value| match value {
                Value::Text(text) => Some(ByteArray::from(text.as_str())),
                _ => None,
            }),
            // The column's logical type says that the 64 bits have no sign.
            Kind::Count => write::<Int64Type>(column, values, |value| match value {
                Value::Count(count) => Some(count.cast_signed()),
                _ => None,
            }),
            Kind::Figure => write::<DoubleType>(column, values, |value| match value {
                Value::Figure(figure) => Some(*figure),
                _ => None,
            }),
            Kind::Truth => write::<BoolType>(column, values, |value| match value {
                Value::Truth(truth) => Some(*truth),
                _ => None,
            }),
        }?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

fn schema(columns: Columns) -> Result<TypePtr> {
    let column = |&(name, kind): &(&str, Kind)| {
        let (physical, logical) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Count => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Kind::Figure => (Physical::DOUBLE, None),
            Kind::Truth => (Physical::BOOLEAN, None),
        };
        Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL)
            .build()
            .map(Arc::new)
    };
    let fields = columns.iter().map(column).collect::<Result<_>>()?;
    Type::group_type_builder("schema")
        .with_fields(fields)
        .build()
        .map(Arc::new)
}

/// Writes a column. `of` returns `None` for a value of another kind.
fn write<'v, T: DataType>(
    mut column: SerializedColumnWriter<'_>,
    values: impl Iterator<Item = Option<&'v Value>>,
    of: fn(&Value) -> Option<T::T>,
) -> Result<()> {
    let (mut known, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        known.extend(value.map(|value| of(value).expect("a value of the column's kind")));
    }
    column.typed::<T>().write_batch(&known, Some(&levels), None)?;
    column.close()
}
