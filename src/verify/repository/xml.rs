//! Elements of metadata, one package at a time.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

/// Metadata have four levels.
const MAX_DEPTH: usize = 16;

/// An element without its namespace's prefix.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    /// The value of an attribute; empty where there is none.
    pub fn get(&self, name: &str) -> &str {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }

    /// The first child of that name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of a child; empty where there is none.
    pub fn text_of(&self, name: &str) -> &str {
        self.child(name).map_or("", |child| &child.text)
    }
}

/// Reads a document, and gives each child of its root to `each`, which sees the root without children.
pub(super) fn read(bytes: &[u8], mut each: impl FnMut(&Element, Element)) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|e| format!("is no UTF-8: {e}"))?;
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Element> = Vec::new();
    let mut ended = false;
    loop {
        let at = reader.buffer_position();
        let wrong = |what: &str| format!("is no XML that is expected here: {what} at byte {at}");
        match reader.read_event().map_err(|e| wrong(&e.to_string()))? {
            Event::Start(start) => {
                if open.len() >= MAX_DEPTH || ended {
                    return Err(wrong("an element too many"));
                }
                open.push(element(&start).map_err(|e| wrong(&e))?);
            }
            Event::End(_) => {
                let Some(done) = open.pop() else { return Err(wrong("an end without a start")) };
                match open.as_mut_slice() {
                    [] => ended = true,
                    [root] => each(root, done),
                    [.., parent] => parent.children.push(done),
                }
            }
            Event::Text(text) => {
                if let Some(inner) = open.last_mut() {
                    inner.text.push_str(&text.xml10_content());
                }
            }
            Event::GeneralRef(reference) => {
                let name = reference.xml10_content();
                let c = match &*name {
                    "lt" => '<',
                    "gt" => '>',
                    "amp" => '&',
                    "quot" => '"',
                    "apos" => '\'',
                    _ => reference
                        .resolve_char_ref()
                        .ok()
                        .flatten()
                        .ok_or_else(|| wrong("an entity that is not known"))?,
                };
                if let Some(inner) = open.last_mut() {
                    inner.text.push(c);
                }
            }
            Event::Decl(_) | Event::Comment(_) => {}
            Event::Eof if ended => return Ok(()),
            Event::Eof => return Err(wrong("its end")),
            _ => return Err(wrong("something that metadata do not have")),
        }
    }
}

fn element(start: &BytesStart<'_>) -> Result<Element, String> {
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|e| e.to_string())?;
        let value =
            attribute.normalized_value(XmlVersion::Explicit1_0).map_err(|e| e.to_string())?;
        attributes.push((attribute.key.as_ref().to_owned(), value.into_owned()));
    }
    let name = start.local_name().as_ref().to_owned();
    Ok(Element { name, attributes, ..Element::default() })
}
