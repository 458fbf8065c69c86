//! Tables as text, without columns that say nothing.

/// A table of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    /// Heads of the columns.
    pub heads: Vec<String>,
    /// The rows, each with a cell for every column.
    pub rows: Vec<Vec<String>>,
    /// Number of columns at the left that are names. The others are figures.
    pub texts: usize,
}

impl Sheet {
    /// Creates a table without rows. The first `texts` columns are names.
    pub fn new(heads: impl IntoIterator<Item = impl Into<String>>, texts: usize) -> Sheet {
        Sheet {
            heads: heads.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            texts,
        }
    }

    /// Returns the table without the columns of figures whose cells are all empty or a dash.
    #[must_use]
    pub fn with_content(self) -> Sheet {
        let says = |index: usize| self.rows.iter().any(|row| !matches!(row[index].as_str(), "" | "-"));
        let kept: Vec<bool> = (0..self.heads.len())
            .map(|index| index < self.texts || says(index))
            .collect();
        self.only(&kept)
    }

    /// Returns the table without the column of names called `head`, if that has the same name in every row.
    #[must_use]
    pub fn without_one(self, head: &str) -> Sheet {
        let Some(at) = self.heads[..self.texts].iter().position(|known| known == head) else {
            return self;
        };
        if self.rows.windows(2).any(|pair| pair[0][at] != pair[1][at]) {
            return self;
        }
        let kept: Vec<bool> = (0..self.heads.len()).map(|index| index != at).collect();
        self.only(&kept)
    }

    /// Returns the table with the columns that are `kept`.
    #[must_use]
    pub fn only(self, kept: &[bool]) -> Sheet {
        let chosen = |cells: Vec<String>| -> Vec<String> {
            let cells = cells.into_iter().zip(kept);
            cells.filter(|(_, kept)| **kept).map(|(cell, _)| cell).collect()
        };
        Sheet {
            texts: kept[..self.texts].iter().filter(|kept| **kept).count(),
            heads: chosen(self.heads),
            rows: self.rows.into_iter().map(chosen).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        let mut sheet = Sheet::new(["case", "guest", "mean", "published"], 2);
        sheet.rows = vec![
            ["1x", "build", "3", ""].map(str::to_owned).to_vec(),
            ["2x", "build", "-", "-"].map(str::to_owned).to_vec(),
        ];
        let shown = sheet.clone().with_content();
        assert_eq!(shown.heads, ["case", "guest", "mean"]);
        let shown = shown.without_one("guest").without_one("case");
        assert_eq!(
            (shown.heads, shown.texts),
            (vec!["case".to_owned(), "mean".to_owned()], 1)
        );
        assert_eq!(shown.rows[1], ["2x", "-"]);
        sheet.rows[1][1] = "db".to_owned();
        assert_eq!(sheet.without_one("guest").heads.len(), 4);
    }
}
