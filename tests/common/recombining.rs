//! Shards that are made by hand, and recombined.

// The lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use crate::common::{Ran, gfxpack, run};

/// Split shards made by hand, and a configuration.
pub struct Split {
    pub dir: TempDir,
}

impl Split {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// Adds files to the artifact `shard/artifact`, all under the prefix `p`.
    pub fn add(&self, artifact: &str, content: &[(&str, &str)]) -> &Self {
        let dir = self.dir.path().join("split").join(artifact);
        for (path, text) in content {
            let path = dir.join("p").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(dir.join("artifact_manifest.txt"), "p\n").unwrap();
        self
    }

    /// Gives a file of an artifact a second name.
    pub fn link(&self, artifact: &str, first: &str, second: &str) -> &Self {
        let dir = self.dir.path().join("split").join(artifact).join("p");
        fs::hard_link(dir.join(first), dir.join(second)).unwrap();
        self
    }

    /// What is in a file of the output.
    pub fn made(&self, path: &str) -> String {
        fs::read_to_string(self.out().join(path)).unwrap()
    }

    pub fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    pub fn recombine(&self, config: &serde_json::Value) -> Ran {
        let path = self.dir.path().join("groups.json");
        fs::write(&path, config.to_string()).unwrap();
        run(gfxpack()
            .args(["recombine", "--verbose", "--input-shards-dir"])
            .arg(self.dir.path().join("split"))
            .arg("--config")
            .arg(path)
            .arg("--output-dir")
            .arg(self.out()))
    }
}

/// A configuration with three groups.
pub fn config(validation: &serde_json::Value) -> serde_json::Value {
    json!({
        "primary_shard": "a",
        "architecture_groups": {
            "gfx90X": {"display_name": "", "architectures": ["gfx908", "gfx90a"]},
            "gfx110X": {"display_name": "", "architectures": ["gfx1100", "gfx1101"]},
            "gfx115X": {"display_name": "", "architectures": ["gfx1151"]},
        },
        "validation": validation,
    })
}

/// Which line of the messages is an error and which a warning.
#[track_caller]
pub fn told(ran: &Ran, strict: bool, finding: &str) {
    let kind = if strict { "error: " } else { "warning: " };
    assert!(ran.stderr.contains(&format!("{kind}{finding}")), "{finding}: {}", ran.stderr);
}
