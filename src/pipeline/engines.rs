//! The graph of work in the words of engines that people have: a file for ninja, and matrices of jobs for
//! a CI service with one machine a job.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::graph::{Node, balance, sizes_name};
use crate::error::{Error, Result};

/// The first line of what [`Engine::ninja`] writes.
pub const WRITTEN_BY: &str = "# Written by `gfxpack plan`";

/// How nodes are run. Paths stand in commands as they are here: relative ones start where the engine runs.
#[derive(Debug)]
pub struct Engine<'a> {
    /// The program.
    pub program: &'a OsStr,
    /// Arguments of every `gfxpack make` beside the plans.
    pub options: &'a [OsString],
    /// Where the plans are.
    pub plan_dir: &'a Path,
    /// Where packages go.
    pub output_dir: &'a Path,
    /// Where sizes go.
    pub sizes_dir: &'a Path,
}

/// How the file for ninja is made again.
#[derive(Debug)]
pub struct Replan<'a> {
    /// The file for ninja.
    pub file: &'a Path,
    /// The command, for a shell: that of this run.
    pub command: &'a [u8],
    /// What planning depends on, the configuration's files and all of the input: files and directories.
    pub depends: &'a BTreeSet<PathBuf>,
}

/// One job of a matrix.
#[derive(Debug, Serialize)]
pub struct Job {
    /// What it is called: letters, digits and `-`.
    pub name: String,
    /// A command for a shell, which makes several packages.
    pub command: String,
    /// The packages that it makes.
    pub packages: Vec<String>,
    /// What of the input it reads: artifacts, as directories or archives.
    pub inputs: BTreeSet<String>,
    /// Files of sizes that it reads, which jobs of the first matrix left.
    pub sizes: BTreeSet<String>,
    /// The plans that it reads.
    pub plans: Vec<String>,
    /// The files that it writes, those of sizes among them.
    pub outputs: Vec<String>,
    /// Bytes of the input that it reads, about.
    pub bytes: u64,
}

/// A matrix of jobs in the form that GitHub's `strategy.matrix` takes.
#[derive(Debug, Serialize)]
pub struct Matrix {
    /// The jobs.
    pub include: Vec<Job>,
}

/// The jobs that need nobody, and those that need sizes of the first.
#[derive(Debug, Serialize)]
pub struct Matrices {
    /// First these, in any order.
    pub first: Matrix,
    /// Then these.
    pub then: Matrix,
}

impl Engine<'_> {
    /// Where the plan of a node is.
    pub fn plan(&self, node: &Node) -> PathBuf {
        self.plan_dir.join(format!("{}.plan", node.name))
    }

    fn sizes(&self, package: &str) -> PathBuf {
        self.sizes_dir.join(sizes_name(package))
    }

    /// What a node writes: packages, then sizes.
    fn outputs(&self, node: &Node) -> Vec<PathBuf> {
        let packages = node.outputs.iter().map(|name| self.output_dir.join(name));
        packages.chain(node.has_archives.then(|| self.sizes(&node.name))).collect()
    }

    /// The command that makes nodes, for a shell.
    fn command(&self, nodes: &[&Node]) -> Vec<u8> {
        let mut words: Vec<OsString> = vec![self.program.to_owned(), "make".into()];
        words.extend(self.options.iter().cloned());
        words.extend(["--output-dir".into(), self.output_dir.into()]);
        words.extend(["--sizes-dir".into(), self.sizes_dir.into()]);
        words.extend(nodes.iter().map(|node| self.plan(node).into_os_string()));
        shell(words.iter().map(OsString::as_os_str))
    }

    /// The file for ninja, and the depfile of its own rule.
    pub fn ninja(&self, nodes: &[Node], replan: &Replan) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut text = format!(
            "{WRITTEN_BY}: `ninja -f {}` makes the packages, and plans again where the input changed.\n\n\
             ninja_required_version = 1.5\n\n",
            replan.file.display()
        )
        .into_bytes();
        let deps = Self::plan_rule(&mut text, replan)?;
        self.make_rules(&mut text, nodes)?;
        Ok((text, deps))
    }

    /// What ninja reads where there is no file that could be made again: the packages alone.
    pub fn ninja_once(&self, nodes: &[Node]) -> Result<Vec<u8>> {
        let mut text = format!(
            "{WRITTEN_BY}, for one run of ninja: it makes the packages, and does not plan again.\n\n\
             ninja_required_version = 1.5\n\n"
        )
        .into_bytes();
        self.make_rules(&mut text, nodes)?;
        Ok(text)
    }

    /// Adds the rule that plans again; returns its depfile.
    fn plan_rule(text: &mut Vec<u8>, replan: &Replan) -> Result<Vec<u8>> {
        let (said, unsaid): (Vec<_>, Vec<_>) =
            replan.depends.iter().partition(|path| depfile_word(path).is_some());
        text.extend_from_slice(b"rule plan\n  command = ");
        value(text, replan.command)?;
        text.extend_from_slice(b"\n  depfile = ");
        value(text, depfile(replan.file).as_os_str().as_bytes())?;
        text.extend_from_slice(b"\n  generator = 1\n  description = plan\n\nbuild ");
        path(text, replan.file)?;
        text.extend_from_slice(b": plan");
        implicit(text, unsaid.iter().map(|path| path.as_path()))?;
        text.push(b'\n');
        // What a depfile names may be gone, which is a change as any other; so may be these then.
        for gone in &unsaid {
            text.extend_from_slice(b"build ");
            path(text, gone)?;
            text.extend_from_slice(b": phony\n");
        }
        text.push(b'\n');
        let mut deps = depfile_word(replan.file).ok_or_else(|| {
            Error::usage("cannot be the name of a file for ninja")
                .at(replan.file)
                .hint("use letters, digits, blanks and ordinary punctuation")
        })?;
        deps.push(b':');
        for word in said.into_iter().filter_map(|path| depfile_word(path)) {
            deps.extend_from_slice(b" \\\n ");
            deps.extend_from_slice(&word);
        }
        deps.push(b'\n');
        Ok(deps)
    }

    /// Adds what makes each node.
    fn make_rules(&self, text: &mut Vec<u8>, nodes: &[Node]) -> Result<()> {
        text.extend_from_slice(
            b"rule make\n  command = $make\n  description = make $package\n  restat = 1\n",
        );
        for node in nodes {
            text.extend_from_slice(b"\nbuild");
            for output in self.outputs(node) {
                text.push(b' ');
                path(text, &output)?;
            }
            text.extend_from_slice(b": make ");
            path(text, &self.plan(node))?;
            let sizes: Vec<PathBuf> = node.needs.iter().map(|need| self.sizes(need)).collect();
            implicit(text, node.inputs.iter().chain(&sizes).map(PathBuf::as_path))?;
            text.extend_from_slice(b"\n  make = ");
            value(text, &self.command(&[node]))?;
            text.extend_from_slice(b"\n  package = ");
            value(text, node.name.as_bytes())?;
            text.push(b'\n');
        }
        Ok(())
    }

    /// Matrices of at most `workers` jobs. `artifacts` are the directories and archives of the input,
    /// which stand for the files in them. Fails where a path is not UTF-8.
    pub fn matrices(
        &self,
        nodes: &[Node],
        artifacts: &BTreeSet<PathBuf>,
        workers: usize,
    ) -> Result<Matrices> {
        let (first, then): (Vec<&Node>, Vec<&Node>) =
            nodes.iter().partition(|node| node.needs.is_empty());
        let first = self.matrix("first", &first, artifacts, workers)?;
        let then = self.matrix("then", &then, artifacts, workers)?;
        Ok(Matrices { first, then })
    }

    fn matrix(
        &self,
        called: &str,
        nodes: &[&Node],
        artifacts: &BTreeSet<PathBuf>,
        workers: usize,
    ) -> Result<Matrix> {
        let bins = balance(nodes, workers);
        let width = bins.len().to_string().len();
        let job = |(number, bin): (usize, &Vec<usize>)| {
            let nodes: Vec<&Node> = bin.iter().map(|&place| nodes[place]).collect();
            let each = || nodes.iter().copied();
            let inputs: BTreeSet<&Path> = each()
                .flat_map(|node| &node.inputs)
                .map(|file| artifact_of(file, artifacts).unwrap_or(file))
                .collect();
            let sizes = each().flat_map(|node| &node.needs).map(|need| self.sizes(need));
            let outputs = each().flat_map(|node| self.outputs(node));
            let plans = each().map(|node| self.plan(node));
            let command = self.command(&nodes);
            Ok(Job {
                name: format!("{called}-{:0width$}", number + 1),
                command: text(OsStr::from_bytes(&command))?,
                packages: each().map(|node| node.name.clone()).collect(),
                inputs: inputs
                    .into_iter()
                    .map(|path| text(path.as_os_str()))
                    .collect::<Result<_>>()?,
                sizes: sizes.map(|path| text(path.as_os_str())).collect::<Result<_>>()?,
                plans: plans.map(|path| text(path.as_os_str())).collect::<Result<_>>()?,
                outputs: outputs.map(|path| text(path.as_os_str())).collect::<Result<_>>()?,
                bytes: each().map(|node| node.bytes).sum(),
            })
        };
        Ok(Matrix { include: bins.iter().enumerate().map(job).collect::<Result<_>>()? })
    }
}

/// The directory or archive that a file is (in).
fn artifact_of<'a>(file: &Path, artifacts: &'a BTreeSet<PathBuf>) -> Option<&'a Path> {
    file.ancestors().find_map(|above| artifacts.get(above)).map(PathBuf::as_path)
}

fn text(words: &OsStr) -> Result<String> {
    let text = words.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        let shown = words.to_string_lossy();
        Error::failed(format!("`{shown}` is not UTF-8, which JSON is"))
            .hint("rename the file; ninja takes any name")
            .into()
    })
}

/// The depfile of a file for ninja: beside it, with `.d` behind its name.
pub fn depfile(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".d");
    name.into()
}

/// Words as a POSIX shell reads them.
pub fn shell<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(byte);
    let mut line = Vec::new();
    for word in words {
        if !line.is_empty() {
            line.push(b' ');
        }
        let word = word.as_bytes();
        if !word.is_empty() && word.iter().all(plain) {
            line.extend_from_slice(word);
            continue;
        }
        line.push(b'\'');
        for &byte in word {
            match byte {
                b'\'' => line.extend_from_slice(b"'\\''"),
                byte => line.push(byte),
            }
        }
        line.push(b'\'');
    }
    line
}

fn unspeakable(text: &[u8], what: &str) -> Error {
    let shown = text.escape_ascii();
    Error::failed(format!("`{shown}` has a {what}, which a file for ninja cannot have here"))
        .hint("rename the file or directory")
}

/// Adds the value of a variable: `$` is doubled. A line cannot go on behind a newline.
fn value(text: &mut Vec<u8>, value: &[u8]) -> Result<()> {
    if value.contains(&b'\n') {
        return Err(unspeakable(value, "newline").into());
    }
    for &byte in value {
        if byte == b'$' {
            text.push(b'$');
        }
        text.push(byte);
    }
    Ok(())
}

/// Adds a path of a build line, in which blanks and colons are escaped, too. A bar would end it, and
/// cannot be escaped.
fn path(text: &mut Vec<u8>, path: &Path) -> Result<()> {
    let mut escaped = Vec::new();
    if path.as_os_str().as_bytes().contains(&b'|') {
        return Err(unspeakable(path.as_os_str().as_bytes(), "bar").into());
    }
    value(&mut escaped, path.as_os_str().as_bytes())?;
    for byte in escaped {
        if b" :".contains(&byte) {
            text.push(b'$');
        }
        text.push(byte);
    }
    Ok(())
}

/// Adds implicit inputs.
fn implicit<'a>(text: &mut Vec<u8>, paths: impl Iterator<Item = &'a Path>) -> Result<()> {
    for (nth, input) in paths.enumerate() {
        text.extend_from_slice(if nth == 0 { b" | $\n    " } else { b" $\n    " });
        path(text, input)?;
    }
    Ok(())
}

/// A path as a depfile has it, where ninja's reader of them takes it: other characters end a name there.
fn depfile_word(path: &Path) -> Option<Vec<u8>> {
    let mut word = Vec::new();
    let bytes = path.as_os_str().as_bytes();
    for &byte in bytes {
        match byte {
            b' ' => word.extend_from_slice(b"\\ "),
            b'#' => word.extend_from_slice(b"\\#"),
            b'$' => word.extend_from_slice(b"$$"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0x80.. => word.push(byte),
            _ if b"+,/_:.~()}{%=@[]!-".contains(&byte) => word.push(byte),
            _ => return None,
        }
    }
    // At its end a colon would make it a target.
    (!bytes.ends_with(b":") && !bytes.windows(2).any(|two| two == b": ")).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["gfxpack", "a b", "it's", "", "$HOME", "gfx90a:xnack+", "a;b", "*"];
        let line = shell(words.iter().map(OsStr::new));
        let expected = r"gfxpack 'a b' 'it'\''s' '' '$HOME' gfx90a:xnack+ 'a;b' '*'";
        assert_eq!(String::from_utf8(line).unwrap(), expected);
    }

    #[test]
    fn paths_are_escaped_for_ninja() {
        let escaped = |name: &str| {
            let mut text = Vec::new();
            path(&mut text, Path::new(name)).map(|()| String::from_utf8(text).unwrap())
        };
        assert_eq!(escaped("a b/$x:y").unwrap(), "a$ b/$$x$:y");
        assert!(escaped("a\nb").is_err() && escaped("a|b").is_err());
        let word =
            |name: &str| depfile_word(Path::new(name)).map(|w| String::from_utf8(w).unwrap());
        assert_eq!(word("a b#c$d:e").unwrap(), "a\\ b\\#c$$d:e");
        assert_eq!(
            [word("a:"), word("a: b"), word("a*b"), word("a\nb"), word("a\\b")],
            [const { None }; 5]
        );
    }

    #[test]
    fn balancing_gives_the_largest_first() {
        let node = |name: &str, mib: u64| Node {
            name: name.to_owned(),
            plan: Vec::new(),
            inputs: BTreeSet::new(),
            needs: BTreeSet::new(),
            outputs: BTreeSet::new(),
            has_archives: false,
            bytes: mib << 20,
        };
        let nodes = [node("a", 10), node("b", 50), node("c", 30), node("d", 60), node("e", 0)];
        let nodes: Vec<&Node> = nodes.iter().collect();
        assert_eq!(balance(&nodes, 2), [vec![0, 3, 4], vec![1, 2]]);
        assert_eq!(balance(&nodes, 1), [vec![0, 1, 2, 3, 4]]);
        assert_eq!(balance(&nodes[..2], 9).len(), 2);
        assert_eq!(balance(&[], 9), [[0; 0]; 0]);
    }
}
