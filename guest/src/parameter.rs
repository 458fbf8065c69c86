//! Parameters of what a program brings along: experiments set them by name.

use alloc::vec::Vec;

/// A parameter, in the value that has it.
#[derive(Debug)]
pub struct Parameter<'a> {
    /// Its name in experiments.
    pub name: &'static str,
    /// What it is, in one line, for lists.
    pub about: &'static str,
    /// The least and the greatest number. Times have no limits but their type's.
    pub range: (f64, f64),
    /// Where it is.
    pub place: Place<'a>,
}

/// Where a parameter is. The type says which values it takes.
#[derive(Debug)]
pub enum Place<'a> {
    /// A whole number.
    U32(&'a mut u32),
    /// A whole number.
    U64(&'a mut u64),
    /// A number that need not be whole.
    F64(&'a mut f64),
    /// A time in nanoseconds.
    Nanos(&'a mut u64),
    /// `true` or `false`.
    Flag(&'a mut bool),
}

impl<'a> Parameter<'a> {
    /// Returns a parameter without limits but those of its type, and not below 0.
    pub const fn new(name: &'static str, about: &'static str, place: Place<'a>) -> Parameter<'a> {
        Parameter {
            name,
            about,
            range: (0.0, f64::INFINITY),
            place,
        }
    }

    /// Limits the number.
    #[must_use]
    pub const fn within(self, min: f64, max: f64) -> Parameter<'a> {
        Parameter {
            range: (min, max),
            ..self
        }
    }
}

/// A value that was set.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    U32(u32),
    U64(u64),
    F64(f64),
    Nanos(u64),
    Flag(bool),
}

/// The values of all parameters of one thing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters(Vec<Stored>);

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    name: &'static str,
    about: &'static str,
    range: (f64, f64),
    value: Value,
}

impl Parameters {
    /// No parameters.
    pub const NONE: Parameters = Parameters(Vec::new());

    /// Returns the values of `parameters`.
    pub fn of(parameters: Vec<Parameter<'_>>) -> Parameters {
        let stored = |Parameter {
                          name,
                          about,
                          range,
                          place,
                      }: Parameter<'_>| Stored {
            name,
            about,
            range,
            value: match place {
                Place::U32(value) => Value::U32(*value),
                Place::U64(value) => Value::U64(*value),
                Place::F64(value) => Value::F64(*value),
                Place::Nanos(value) => Value::Nanos(*value),
                Place::Flag(value) => Value::Flag(*value),
            },
        };
        Parameters(parameters.into_iter().map(stored).collect())
    }

    /// Returns the parameters, whose values can be set.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = Parameter<'_>> {
        self.0.iter_mut().map(|stored| Parameter {
            name: stored.name,
            about: stored.about,
            range: stored.range,
            place: match &mut stored.value {
                Value::U32(value) => Place::U32(value),
                Value::U64(value) => Place::U64(value),
                Value::F64(value) => Place::F64(value),
                Value::Nanos(value) => Place::Nanos(value),
                Value::Flag(value) => Place::Flag(value),
            },
        })
    }

    /// Copies the values to those of `parameters` that have the same name and type.
    pub fn copy_to(&self, parameters: Vec<Parameter<'_>>) {
        for Parameter { name, place, .. } in parameters {
            let stored = self.0.iter().find(|stored| stored.name == name);
            match (place, stored.map(|stored| stored.value)) {
                (Place::U32(place), Some(Value::U32(value))) => *place = value,
                (Place::U64(place), Some(Value::U64(value))) => *place = value,
                (Place::F64(place), Some(Value::F64(value))) => *place = value,
                (Place::Nanos(place), Some(Value::Nanos(value))) => *place = value,
                (Place::Flag(place), Some(Value::Flag(value))) => *place = value,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[derive(Debug, Default, PartialEq)]
    struct Mine {
        stages: u32,
        work_ns: u64,
        eager: bool,
    }

    impl Mine {
        fn parameters(&mut self) -> Vec<Parameter<'_>> {
            vec![
                Parameter::new("stages", "stages", Place::U32(&mut self.stages)).within(1.0, 64.0),
                Parameter::new("work", "time", Place::Nanos(&mut self.work_ns)),
                Parameter::new("eager", "whether", Place::Flag(&mut self.eager)),
            ]
        }
    }

    #[test]
    fn what_is_set_reaches_its_field_and_no_other() {
        let mut parameters = Parameters::of(Mine::default().parameters());
        for parameter in parameters.iter_mut() {
            if let ("work", Place::Nanos(value)) = (parameter.name, parameter.place) {
                *value = 7;
            }
        }
        let mut mine = Mine::default();
        parameters.copy_to(mine.parameters());
        assert_eq!(
            mine,
            Mine {
                work_ns: 7,
                ..Mine::default()
            }
        );
        assert_ne!(parameters, Parameters::of(Mine::default().parameters()));
    }
}
