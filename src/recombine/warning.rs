//! Warnings, and what several of them have in common.

use std::collections::{HashMap, HashSet};

use serde::{Serialize, Serializer};

/// Names that a line for several warnings has.
const SHOWN: usize = 5;

/// What is not as it should be. A program reads each for itself; a person is told once what several say
/// ([`told`]). It is serialised as its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    text: String,
    /// What others say as well, `{}` standing for of what they say it; and of what this one does.
    common: Option<(String, String)>,
}

impl Warning {
    /// One that says what no other does.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), common: None }
    }

    /// One that others may join: `common` is what all of them say, with `{}` for the list of what they say
    /// it of.
    pub(super) fn of(
        of: impl Into<String>,
        common: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self { text: text.into(), common: Some((common.into(), of.into())) }
    }

    /// The warning by itself.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// The warnings in lines for people: what several say is one line, with their number and the first few
/// names, where the first of them stood.
pub fn told(warnings: &[Warning]) -> Vec<String> {
    /// What warnings say that have one text in common.
    #[derive(Default)]
    struct Joined<'a> {
        count: usize,
        /// Of what they say it, each once, in their order.
        of: Vec<&'a str>,
        seen: HashSet<&'a str>,
    }
    let mut joined: HashMap<&str, Joined> = HashMap::new();
    for (common, of) in warnings.iter().filter_map(|warning| warning.common.as_ref()) {
        let joined = joined.entry(common).or_default();
        joined.count += 1;
        if joined.seen.insert(of) {
            joined.of.push(of);
        }
    }
    let mut lines = Vec::new();
    for warning in warnings {
        let Some((common, _)) = &warning.common else {
            lines.push(warning.text.clone());
            continue;
        };
        // The first of them tells of all.
        let Some(Joined { count, of, .. }) = joined.remove(common.as_str()) else { continue };
        if count == 1 {
            lines.push(warning.text.clone());
            continue;
        }
        let mut list = of[..of.len().min(SHOWN)].join(", ");
        if of.len() > SHOWN {
            list += &format!(" and {} more ({} in all)", of.len() - SHOWN, of.len());
        }
        lines.push(common.replace("{}", &list));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_say_is_one_line_where_the_first_of_them_stood() {
        let of = |isa: &str, shard: &str| {
            Warning::of(isa, "left out: {}", format!("{shard}/x_lib_{isa} is left out"))
        };
        let alone = Warning::new("something else");
        assert_eq!(told(&[]), [""; 0]);
        assert_eq!(
            told(&[of("a", "s"), alone.clone()]),
            ["s/x_lib_a is left out", "something else"]
        );
        let mut all = vec![alone.clone(), of("a", "s"), alone, of("b", "s"), of("a", "t")];
        assert_eq!(told(&all), ["something else", "left out: a, b", "something else"]);
        all.extend(["c", "d", "e", "f", "g"].map(|isa| of(isa, "t")));
        assert_eq!(told(&all)[1], "left out: a, b, c, d, e and 2 more (7 in all)");
    }
}
