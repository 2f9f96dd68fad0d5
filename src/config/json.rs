//! Reading JSON that people wrote: what is wrong is told with line, column and the key that it is at.

use serde::de::DeserializeOwned;

/// What is wrong with a text, and where.
pub(crate) type JsonError = serde_path_to_error::Error<serde_json::Error>;

/// Reads a value; an error says at which key.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let value = T::deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track));
    let value = value.and_then(|value| json.end().map(|()| value));
    value.map_err(|e| JsonError::new(track.path(), e))
}

/// What to do about an error: the name that a wrong key was meant to be, if there is one close to it, and where all are.
pub(crate) fn hint(e: &JsonError, all: &str) -> String {
    // serde gives names in its message only: the wrong one, then all that are right.
    let message = e.inner().to_string();
    let mut names = message.split('`').skip(1).step_by(2);
    let wrong = names
        .next()
        .filter(|_| message.starts_with("unknown field") || message.starts_with("unknown variant"));
    let close = wrong.and_then(|wrong| {
        let near = names.map(|name| (strsim::damerau_levenshtein(wrong, name), name));
        near.filter(|(distance, name)| distance * 3 <= name.len()).min()
    });
    match close {
        Some((_, name)) => format!("did you mean `{name}`? {all}"),
        None => all.to_owned(),
    }
}
