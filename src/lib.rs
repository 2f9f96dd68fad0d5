//! gfxpack takes the build artifacts of a ROCm-style GPU software build apart (host code on one
//! side, the GPU code of each architecture on the other), regroups them as a packaging
//! configuration says, and writes `.deb` and `.rpm` packages.
//!
//! # The tour
//!
//! ```text
//!  shards (directories, archives)
//!     │  artifact::read_shards
//!     ▼
//! ArtifactTree ──split──▶ generic tree + one tree per ISA
//!                                │  recombine (config)
//!                                ▼
//!                         generic tree + one tree per group ──stage──▶ package trees + relations
//!                                                                            │
//!        tree::dir (artifact dirs)   tree::list (dry run)        package::deb   package::rpm
//! ```
//!
//! A [`tree::Tree`] is a sorted map from path to entry; a file's content is a [`tree::Source`], which
//! says where the bytes come from. Stages plan: they map trees to trees and touch no output. Sinks
//! write. So `split` is a plan and a directory sink, `build` all plans and the package sinks.
//!
//! In the order of the pipeline:
//!
//! - [`target`]: target ids, processors, families;
//! - [`elf`], [`fatbin`], [`kpack`], [`tarball`]: the formats; they take readers, not paths;
//! - [`tree`], [`artifact`], [`database`], [`config`]: what stages work on;
//! - [`split`], [`recombine`], [`stage`], [`package`], [`verify`]: one folder a stage;
//! - [`repo`]: repositories of packages;
//! - [`discover`], [`inspect`]: what is in a tree of artifacts, what is in one file;
//! - [`sign`]: OpenPGP signatures; [`cache`]: what a run keeps for the next one;
//! - [`pipeline`] strings the stages together.
//!
//! Stages never import each other; only the binary prints, exits, or knows the command line.

pub mod artifact;
mod buffers;
pub mod cache;
pub mod config;
pub mod database;
mod date;
pub mod discover;
pub mod elf;
pub mod error;
pub mod fatbin;
pub mod inspect;
pub mod jobs;
pub mod kpack;
mod md5_lanes;
mod msgpack;
pub mod package;
pub mod pipeline;
pub mod progress;
pub mod read_at;
pub mod recombine;
pub mod repo;
mod sha256_pair;
pub mod sign;
pub mod split;
pub mod stage;
mod streams;
pub mod tarball;
pub mod target;
pub mod tree;
pub mod verify;
mod zstd_blocks;
