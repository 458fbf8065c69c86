//! Tables as Parquet files: read again, they have the rows of the CSV files.

use std::io::Write as _;

use holdfast_lab::tidy::Tidy;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};

#[path = "integration/fake.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod fake;

/// Returns `field` as a CSV file has it.
fn written(field: &Field) -> String {
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Bool(truth) => truth.to_string(),
        Field::Double(figure) => figure.to_string(),
        Field::ULong(count) => count.to_string(),
        other => panic!("no column is of this type: {other:?}"),
    }
}

#[test]
fn a_parquet_file_has_the_columns_and_rows_of_the_csv_file() {
    let mut results = fake::results();
    // A value beyond the range of numbers with a sign, one that is not known, and a name that CSV quotes.
    results.cases[0].longest_stalls_ns = vec![u64::MAX];
    results.cases[0].variant = "a \"b\", c".to_owned();
    for table in Tidy::ALL {
        let csv = table.csv(&results);
        let mut csv = csv::Reader::from_reader(csv.as_bytes());
        let names: Vec<String> = csv.headers().expect("a head line").iter().map(str::to_owned).collect();
        let rows: Vec<Vec<String>> = csv
            .records()
            .map(|row| row.expect("a row").iter().map(str::to_owned).collect())
            .collect();

        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&table.parquet(&results)).expect("space");
        let read = SerializedFileReader::new(file).expect("a Parquet file");
        let metadata = read.metadata().file_metadata();
        let entries = metadata.key_value_metadata().expect("metadata");
        assert!(
            entries
                .iter()
                .any(|entry| entry.key == "holdfast.version" && entry.value.as_deref() == Some("test"))
        );
        let columns = metadata.schema().get_fields();
        assert!(
            columns.iter().map(|column| column.name()).eq(&names),
            "{}",
            table.name()
        );
        let fields = |row: Row| row.get_column_iter().map(|(_, field)| written(field)).collect();
        let found: Vec<Vec<String>> = read
            .get_row_iter(None)
            .expect("rows")
            .map(|row| fields(row.expect("a row")))
            .collect();
        assert_eq!(found, rows, "{}", table.name());
        assert!(!rows.is_empty(), "{}", table.name());
    }
}
