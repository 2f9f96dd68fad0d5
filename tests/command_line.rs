//! The command line: what it says of itself, and what it refuses.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::process::Command;

use common::{
    copy_tree, example_config, example_packages, example_shards, fails, gfxpack, ok, repo, run,
};

/// What bash offers where a word begins with `word`, after `line`.
#[track_caller]
fn bash_completes(line: &str, word: &str) -> Vec<String> {
    let script = ok(gfxpack().args(["completions", "bash"]));
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("completions"), script).unwrap();
    // As the shell does it: by the function that is registered for the command.
    let ask = r#"
        source completions
        [[ $(complete -p gfxpack) =~ -F\ ([^ ]+) ]]
        COMP_WORDS=($1 "$2") COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        "${BASH_REMATCH[1]}" gfxpack "$2" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", ask, "bash", line, word]).current_dir(dir.path());
    ok(&mut bash).lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_values_of_a_fixed_set() {
    for (line, word, expected) in [
        ("gfxpack build --target-distro", "", &["debian12", "debian13"][..]),
        ("gfxpack build --format", "", &["deb", "rpm"]),
        ("gfxpack package --compat", "el", &["el7", "el8", "el9", "el10"]),
        ("gfxpack plan --compat", "ubuntu22", &["ubuntu22.04"]),
        ("gfxpack repo remove /srv --format", "r", &["rpm"]),
        ("gfxpack repo create --rpm-compression", "", &["zstd", "gzip"]),
        ("gfxpack split --kpack-scope", "", &["component", "prefix", "binary"]),
        ("gfxpack split --color", "a", &["auto", "always"]),
        ("gfxpack", "rec", &["recombine"]),
    ] {
        assert_eq!(bash_completes(line, word), expected, "{line} {word}");
    }
    for shell in ["zsh", "fish"] {
        let script = ok(gfxpack().args(["completions", shell]));
        for value in ["debian13", "ubuntu24.04", "gzip", "component"] {
            assert!(script.contains(value), "{shell}: {value}");
        }
    }
}

fn build(dir: &std::path::Path) -> Command {
    let mut command = gfxpack();
    command.current_dir(dir).arg("build").arg("--input-shards-dir").arg(example_shards());
    command.arg("--config").arg(example_config()).args(["--version", "7.1.0"]);
    command.args(["--output-dir", "out"]);
    command
}

#[test]
fn a_fault_of_many_packages_and_both_formats_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(example_packages()).unwrap();
    let packages = dir.path().join("packages.json");
    fs::write(&packages, text.replace("\"MIT\"", "\"MIT\\nand more\"")).unwrap();
    let mut command = build(dir.path());
    command.args(["--release", "1", "--packages"]).arg(packages);
    let said = fails(&mut command, 2);
    let expected = "error: package `hipblaslt`: license has a line break or control character: \"MIT\\nand more\"\n  \
        also: package `hipblaslt-dev`, package `hipblaslt-generic`, package `hipblaslt-gfx110X` and 18 more; 22 places in all\n";
    assert_eq!(said, expected);
    let ran = run(command.args(["--json", "--verbose"]));
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let errors = json["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{json}");
    assert_eq!(errors[0]["also"].as_array().unwrap().len(), 21);
    assert!(ran.stderr.contains("package `rocm-sysdeps-dev`; 22 places"), "{}", ran.stderr);

    // Of the two formats.
    let said = fails(build(dir.path()).args(["--release", "1 2"]), 2);
    assert_eq!(said.matches("error:").count(), 1, "{said}");
    // What an .rpm's could have.
    let said = fails(build(dir.path()).args(["--release", "1_2", "--format", "rpm,deb"]), 2);
    assert!(said.contains("a deb version cannot hold"), "{said}");
}

/// One scheme for all commands: 1 where a path cannot be read, whoever names it; 2 where the words are wrong.
#[test]
fn the_exit_status_says_whose_fault_it_is() {
    let dir = tempfile::tempdir().unwrap();
    copy_tree(&example_shards().join("gfx1151-build"), &dir.path().join("shard"));
    fs::copy(example_config(), dir.path().join("groups.json")).unwrap();
    fs::write(dir.path().join("wrong.json"), "{}").unwrap();
    fs::create_dir(dir.path().join("full")).unwrap();
    fs::write(dir.path().join("full/file"), "").unwrap();
    let status = |line: &str| {
        let ran = run(gfxpack().current_dir(dir.path()).args(line.split(' ')));
        assert!(ran.stderr.starts_with("error: ") || ran.stderr.contains("\nerror: "), "{line}");
        ran.status
    };
    const NEW: &str = "--config groups.json --version 1 --release 1 --output-dir new";
    for line in [
        "discover none",
        "inspect none",
        "extract none --output-dir new",
        "split --artifact-dir none --artifact-prefix a_lib --output-dir new",
        "split --batch-artifact-parent-dir none --output-dir new",
        "split --batch-artifact-parent-dir shard --output-dir new --databases none",
        "recombine --input-shards-dir none --config groups.json --output-dir new",
        "recombine --input-shards-dir shard --config none --output-dir new",
        "verify --artifacts-dir none",
        "verify --packages-dir none",
        "verify --repo-dir none",
        "verify --artifacts-dir shard --config none",
        "verify --artifacts-dir shard --source none",
        &format!("package {NEW} --artifacts-dir none"),
        &format!("build {NEW} --input-shards-dir none"),
        &format!("build {NEW} --input-shards-dir shard --packages none"),
        &format!("build {NEW} --input-shards-dir shard --templates none"),
        &format!("build {NEW} --input-shards-dir shard --sign-key none"),
        &format!("plan {NEW} --input-shards-dir none --ninja new"),
        "make none --output-dir new",
        "sign none --sign-key none",
        "repo list none",
        "repo add none a.deb",
        "repo create new none",
        "repo create new --sign-key none",
    ] {
        assert_eq!(status(line), Some(1), "{line}");
    }
    for line in [
        "discover",
        "inspect a --diff b c",
        "split --batch-artifact-parent-dir shard --output-dir full",
        "recombine --input-shards-dir shard --config wrong.json --output-dir new",
        "verify --artifacts-dir shard --allow x",
        "verify --artifacts-dir shard --external {",
        "build --nonsense",
        &format!("build {NEW} --input-shards-dir shard --format tar"),
        &format!("build {} --input-shards-dir shard", NEW.replace("groups", "wrong")),
        &format!("build {} --input-shards-dir shard", NEW.replace("new", "full")),
        &format!("build {} --input-shards-dir shard", NEW.replace("new", "shard/new")),
        "make --output-dir new",
        "sign a.rpm",
        "repo create full",
        "man nothing",
        "completions csh",
    ] {
        assert_eq!(status(line), Some(2), "{line}");
    }
    // A finding is no failure of the program, but it is not good either.
    let verify =
        run(gfxpack().current_dir(dir.path()).args(["verify", "--artifacts-dir", "shard"]));
    assert_eq!(verify.status, Some(1), "{}", verify.stdout);
    assert!(!dir.path().join("new").exists());

    let help = ok(gfxpack().arg("--help"));
    let pages = [vec!["man"], vec!["man", "build"], vec!["man", "repo", "add"]];
    assert!(help.contains("Exit status:\n  0  done; with `verify`"), "{help}");
    for page in pages {
        let text = ok(gfxpack().args(&page));
        assert!(text.contains(".SH \"EXIT STATUS\"\n.TP\n0\nDone"), "{page:?}: {text}");
    }
}

/// What somebody sees who types `gfxpack build -h`: what has to be said comes first, what few need has headings.
#[test]
fn help_begins_with_what_has_to_be_said() {
    let help = ok(gfxpack().args(["build", "-h"]));
    let options = help.split("Options:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    for option in ["--input-shards-dir", "--config", "--packages", "--output-dir", "--version"] {
        assert!(options.contains(option), "{option}: {options}");
    }
    assert!(!options.contains("--kpack-") && options.lines().count() < 25, "{options}");
    for command in ["discover", "split", "recombine", "verify", "package", "build", "plan", "make"]
    {
        let help = ok(gfxpack().args([command, "--help"]));
        assert!(help.contains("\nExample"), "{command}: {help}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    ok(gfxpack().arg("man").arg("--output-dir").arg(dir.path()));
    for page in ["gfxpack.1", "gfxpack-build.1", "gfxpack-repo.1", "gfxpack-repo-add.1"] {
        let text = fs::read_to_string(dir.path().join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let page = ok(gfxpack().args(["man", "repo", "add"]));
    assert!(page.contains("\\-\\-allow\\-partial"), "{page}");
    assert!(!dir.path().join("gfxpack-help-build.1").exists(), "the same page twice");
    let said = fails(gfxpack().args(["man", "repo", "ad"]), 2);
    assert!(said.contains("`repo` has no command `ad`") && said.contains("create"), "{said}");
    // The foot has program and version on each page; completion offers the commands.
    let foot = concat!("\"gfxpack ", env!("CARGO_PKG_VERSION"), "\"");
    for page in fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&page).unwrap();
        let head = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
        assert!(head.trim_end().ends_with(foot), "{head}");
    }
    let script = ok(gfxpack().args(["completions", "bash"]));
    let (_, of_man) = script.rsplit_once("gfxpack__subcmd__man)").unwrap();
    let words = of_man.lines().find(|line| line.contains("opts=")).unwrap();
    assert!(
        [" build ", " recombine ", " repo ", " add "].iter().all(|w| words.contains(w)),
        "{words}"
    );
}

#[test]
fn verify_says_all_that_it_can_look_at() {
    let said = fails(gfxpack().arg("verify"), 2);
    for option in ["--artifacts-dir", "--packages-dir", "--repo-dir"] {
        assert!(said.contains(option), "{said}");
    }
}

#[test]
fn an_architecture_that_nothing_has_is_refused_and_one_of_several_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let build = |targets: &str, output: &str| {
        let mut command = gfxpack();
        let examples = repo().join("examples");
        command.arg("build").arg("--input-shards-dir").arg(examples.join("shards"));
        command.arg("--config").arg(examples.join("packaging-config.json"));
        command.args(["--version", "1", "--release", "1", "--format", "deb", "--no-auto-deps"]);
        command.args(["--gpu-targets", targets]).arg("--output-dir").arg(dir.path().join(output));
        command
    };
    let said = fails(&mut build("gfx9999", "none"), 2);
    assert!(said.contains("nothing has code for gfx9999") && said.contains("gfx1100"), "{said}");
    assert!(!dir.path().join("none").exists());
    let output = build("gfx9999,gfx1100", "one").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("nothing has code for gfx9999, which"), "{said}");
    assert!(!said.contains("nothing has code for gfx1100"), "{said}");
}

#[test]
fn a_plan_refuses_what_would_have_no_effect_or_hit_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let plan = |options: &[&str]| {
        let mut command = gfxpack();
        command.current_dir(dir.path()).args(["plan", "--version", "1", "--release", "1"]);
        command.args(["--output-dir", "out", "--input-shards-dir"]);
        command.arg(repo().join("examples/shards"));
        command.arg("--config").arg(repo().join("examples/packaging-config.json")).args(options);
        fails(&mut command, 2)
    };
    let said = plan(&["--ninja", "a.ninja", "--cache", "c"]);
    assert!(said.contains("--cache is of no use here"), "{said}");
    let said = plan(&["--ninja", "a", "--github-matrix", "a"]);
    assert!(said.contains("is named for --ninja and for --github-matrix"), "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// What is wrong with a value, and with the value of which option.
#[test]
fn wrong_values_are_told_with_their_option() {
    let dir = tempfile::tempdir().unwrap();
    for (args, words) in [
        (
            ["--release", "1", "--format", "deb,"],
            ["empty value for '--format", "a comma too many?"],
        ),
        (
            ["--release", "1", "--format", ",rpm"],
            ["empty value for '--format", "expected deb, rpm"],
        ),
        (
            ["--release", "1 2", "--format", "deb"],
            ["error: --release `1 2` has ` `, which", "hint: a release is the packaging's number"],
        ),
        (
            ["--release", "1", "--version", "1:7.1"],
            [
                "error: --version `1:7.1` has `:`, which",
                "hint: leave out what stands up to the `:`",
            ],
        ),
        (["--release", "", "--version", "7"], ["error: --release is empty", "hint: give one, as"]),
    ] {
        let mut command = gfxpack();
        command.arg("build").arg("--input-shards-dir").arg(example_shards());
        command.arg("--config").arg(example_config()).arg("--output-dir").arg(dir.path().join("o"));
        if !args.contains(&"--version") {
            command.args(["--version", "7.1"]);
        }
        let said = fails(command.args(args), 2);
        for word in words {
            assert!(said.contains(word), "no {word:?} in:\n{said}");
        }
    }
}

/// Packaging takes what was recombined. That nothing was is one fault, however many artifacts there are.
#[test]
fn packaging_a_split_tree_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let split = dir.path().join("split");
    let shard = example_shards().join("gfx110X-build");
    let mut command = gfxpack();
    command.args(["split", "--batch-artifact-parent-dir"]).arg(shard).arg("--output-dir");
    ok(command.arg(&split));
    let package = || {
        let mut command = gfxpack();
        command.current_dir(dir.path()).args(["package", "--artifacts-dir", "split", "--config"]);
        command.arg(example_config()).args(["--version", "1", "--release", "1"]);
        fails(command.args(["--dry-run", "--output-dir", "out"]), 1)
    };
    let said = package();
    assert!(
        said.starts_with("error: split: 9 artifacts are neither `generic` nor of a group"),
        "{said}"
    );
    assert!(
        said.contains("hint: these are split and not recombined: run `gfxpack recombine`"),
        "{said}"
    );
    assert!(
        said.contains("`gfx1100`, `gfx1101`, `gfx1102`\n") && said.lines().count() == 2,
        "{said}"
    );
    for entry in fs::read_dir(&split).unwrap().map(|entry| entry.unwrap()) {
        let name = entry.file_name().into_string().unwrap();
        if !name.ends_with("_generic") && name != "fft_lib_gfx1100" {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    let said = package();
    assert!(
        said.starts_with("error: split/fft_lib_gfx1100: `gfx1100` is neither `generic`"),
        "{said}"
    );
}
