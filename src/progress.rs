//! How a stage tells what it is doing, without knowing who listens.

/// Listens to a stage. All methods have an empty default, and may be called from any thread.
pub trait Monitor: Sync {
    /// A phase begins: what it does, and how many bytes of input it will go through.
    fn begin(&self, _what: &str, _bytes: u64) {}

    /// So many more bytes of the phase's input are done.
    fn advance(&self, _bytes: u64) {}

    /// The phase has so many bytes more (or fewer) than was foreseen.
    fn foresee(&self, _more: i64) {}

    /// What is being worked on now (an artifact, a package).
    fn at(&self, _what: &str) {}

    /// The phase is over.
    fn end(&self) {}

    /// Something that is worth knowing and not wrong; shown with `--verbose`.
    fn detail(&self, _message: &str) {}
}

/// Listens to nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Monitor for Silent {}
