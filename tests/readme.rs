//! What a newcomer is told: the first two fenced blocks of README.md work, and the files that a
//! distributor looks for are there.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use common::{files, gfxpack, ok, repo, run};

fn text(name: &str) -> String {
    fs::read_to_string(repo().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The fenced blocks of a Markdown file, without their fences.
fn blocks(markdown: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in markdown.lines() {
        let fence = line.trim_start().starts_with("```");
        match &mut open {
            Some(_) if fence => blocks.extend(open.take()),
            Some(block) => *block += &format!("{line}\n"),
            None if fence => open = Some(String::new()),
            None => {}
        }
    }
    assert!(open.is_none(), "a fenced block is not closed");
    blocks
}

/// A block of the README that is one command; lines that a backslash joins are one.
#[track_caller]
fn one_command(index: usize) -> String {
    let blocks = blocks(&text("README.md"));
    let block = blocks.get(index).expect("README.md has two fenced blocks");
    let joined = block.replace("\\\n", " ");
    let mut lines = joined.lines().filter(|line| !line.trim().is_empty());
    let command = lines.next().expect("the block is not empty").trim().to_owned();
    assert_eq!(lines.next(), None, "the block is more than one command");
    assert!(!command.contains([';', '|', '&', '#']), "more than one command: {command}");
    command
}

#[track_caller]
fn assert_executable(name: &str) {
    let mode = fs::metadata(repo().join(name)).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "{name} is not executable");
    ok(Command::new("bash").arg("-n").arg(repo().join(name)));
}

/// Run as it stands, but for cargo: what it would build is built already.
#[test]
fn the_first_block_is_one_command_that_builds_packages() {
    let command = one_command(0);
    assert!(command.starts_with("cargo run --release --locked -- build "), "{command}");

    let temp = tempfile::tempdir().unwrap();
    let clone = temp.path().join("clone");
    let bin = temp.path().join("bin");
    [&clone, &bin].iter().for_each(|dir| fs::create_dir(dir).unwrap());
    symlink(repo().join("examples"), clone.join("examples")).unwrap();
    let cargo = "#!/bin/sh\n\
                 while [ \"$1\" != -- ]; do shift || exit; done\n\
                 shift\n\
                 exec \"$GFXPACK\" \"$@\"\n";
    fs::write(bin.join("cargo"), cargo).unwrap();
    fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        shell.current_dir(&clone).env("PATH", &path).env("GFXPACK", gfxpack().get_program());
        run(shell.env_remove("SOURCE_DATE_EPOCH").args(["-euc", command]))
    };
    let ran = shell(&command);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    // No warnings: one line, which says what there is now.
    let listed = ran.stdout.lines().count();
    let (line, rest) = ran.stderr.split_once('\n').unwrap();
    assert!(line.starts_with(&format!("{listed} packages (4")), "{line}");
    assert!(line.contains(" KiB) in out, made in ") && line.ends_with(" s"), "{line}");
    assert_eq!(rest, "");
    let quiet = shell(&format!("{command} --quiet"));
    assert_eq!((quiet.status, quiet.stdout, quiet.stderr), (Some(0), "".into(), "".into()));

    let words: Vec<_> = command.split_whitespace().collect();
    let option = words.iter().position(|word| *word == "--output-dir").unwrap();
    let out = words[option + 1];
    let made = files(&clone.join(out));
    for package in ["rocblas-generic", "rocblas-gfx110X", "rocblas-gfx120X", "hipblaslt-generic"] {
        let deb = format!("{}_7.1.0-1_amd64.deb", package.to_lowercase());
        let rpm = format!("{package}-7.1.0-1.x86_64.rpm");
        assert!(made.contains(&deb) && made.contains(&rpm), "{package}: {made:?}");
    }
    let ignored = text(".gitignore");
    assert!(ignored.lines().any(|line| line.trim_matches('/') == out), "git does not ignore {out}");
}

#[test]
fn the_second_block_is_one_command_that_runs_the_tests() {
    let command = one_command(1);
    assert!(matches!(command.as_str(), "tests/run" | "./tests/run"), "{command}");
    assert_executable("tests/run");
    assert!(text("tests/run").contains("tests/setup.sh\n"), "it installs what the tests need");
    assert_executable("tests/setup.sh");
}

/// As it stands, but for cargo: the other commands are for a directory of one's own.
#[test]
fn what_is_said_of_installing_is_what_the_program_does() {
    let home = tempfile::tempdir().unwrap();
    let block = blocks(&text("README.md")).swap_remove(2);
    let (cargo, rest) = block.split_once('\n').unwrap();
    assert!(cargo.starts_with("cargo install --locked --path . "), "{cargo}");
    let bin = Path::new(gfxpack().get_program()).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path))).unwrap();
    ok(Command::new("sh").args(["-euc", rest]).env("HOME", home.path()).env("PATH", path));
    let made = files(home.path());
    for file in ["man/man1/gfxpack-repo-add.1", "bash-completion/completions/gfxpack"] {
        assert!(made.contains(&format!(".local/share/{file}")), "{made:?}");
    }
}

#[test]
fn the_repository_is_complete() {
    for (name, says) in [
        ("LICENSE-MIT", "Copyright (c) 2026 The gfxpack authors"),
        ("LICENSE-APACHE", "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION"),
        ("CHANGELOG.md", ""),
        ("docs/architecture.md", ""),
        ("README.md", "docs/architecture.md"),
    ] {
        let found = text(name);
        assert!(!found.trim().is_empty() && found.contains(says), "{name} does not say `{says}`");
    }
    assert_executable(".ci/run");
    assert!(text(".github/workflows/ci.yml").contains(".ci/run"), "the workflow does the same");
}

/// Links in the documentation lead to files that are there.
#[test]
fn links_lead_somewhere() {
    let docs = fs::read_dir(repo().join("docs")).unwrap().map(|e| e.unwrap().path());
    let pages = docs.chain([repo().join("README.md"), repo().join("CHANGELOG.md")]);
    let mut broken = Vec::new();
    for page in pages.filter(|page| page.extension().is_some_and(|e| e == "md")) {
        let markdown = fs::read_to_string(&page).unwrap();
        for link in markdown.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if file.is_empty() || link.contains("://") {
                continue;
            }
            if !page.parent().unwrap_or(Path::new("")).join(file).exists() {
                broken.push(format!("{} links to {file}", page.display()));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
}

/// Each direct dependency has its reason, and nothing else has.
#[test]
fn dependencies_are_explained() {
    let manifest = text("Cargo.toml");
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    let mut wanted: Vec<_> =
        section.lines().filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    wanted.sort_unstable();
    let page = text("docs/dependencies.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let explained: Vec<_> = rows.filter_map(|row| Some(row.split_once('`')?.0)).collect();
    assert_eq!(explained, wanted);
}
