//! Capabilities of programs: what of root's power a program gets without root.
//!
//! A file has them in its extended attribute `security.capability` (`struct vfs_cap_data` of Linux's
//! `include/uapi/linux/capability.h`): a little-endian word with the version in its top byte and the effective bit at the bottom;
//! for each 32 capabilities a word of those permitted and one of those inheritable; in version 3 the user id that is root. An `.rpm`
//! has them as text that libcap reads, `cap_net_raw=ep`. No other extended attribute has a place in a package.

use std::io;

const ATTRIBUTE: &str = "security.capability";

/// By number.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// The text of an attribute's value.
pub(super) fn text(value: &[u8]) -> io::Result<String> {
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (words, rest) = value.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let (version, sets) = match (words.as_slice(), rest) {
        ([version, sets @ ..], []) => (*version, sets),
        _ => return Err(bad(format!("`{ATTRIBUTE}` has {} bytes", value.len()))),
    };
    let (permitted, inheritable) = match (version >> 24, sets) {
        (1, [p, i]) => (u64::from(*p), u64::from(*i)),
        (2, [p, i, p2, i2]) | (3, [p, i, p2, i2, 0]) => {
            (u64::from(*p2) << 32 | u64::from(*p), u64::from(*i2) << 32 | u64::from(*i))
        }
        (3, [.., root]) => {
            return Err(bad(format!(
                "its capabilities are for a namespace, whose root is user {root}"
            )));
        }
        (version, _) => {
            let len = value.len();
            return Err(bad(format!("`{ATTRIBUTE}` has version {version} and {len} bytes")));
        }
    };
    let unnamed = (permitted | inheritable) >> NAMES.len();
    if unnamed != 0 {
        let first = NAMES.len() + unnamed.trailing_zeros() as usize;
        return Err(bad(format!("capability {first} has no name")));
    }
    let mut clauses = Vec::new();
    for (flags, set) in [
        ("p", permitted & !inheritable),
        ("i", inheritable & !permitted),
        ("ip", permitted & inheritable),
    ] {
        let names: Vec<String> = (0..)
            .zip(NAMES)
            .filter(|(bit, _)| set >> bit & 1 == 1)
            .map(|(_, name)| format!("cap_{name}"))
            .collect();
        let effective = if version & 1 == 1 { "e" } else { "" };
        if !names.is_empty() {
            clauses.push(format!("{}={effective}{flags}", names.join(",")));
        }
    }
    Ok(clauses.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn attributes_are_said_as_libcap_reads_them() {
        for (words, expected) in [
            (&[0x0200_0001, 1 << 13, 0, 0, 0][..], "cap_net_raw=ep"),
            (&[0x0200_0000, 1 << 13 | 1, 0, 0, 0], "cap_chown,cap_net_raw=p"),
            (
                &[0x0200_0001, 1 << 23, 1 << 23, 1 << 6, 1],
                "cap_perfmon=ep cap_mac_override=ei cap_sys_nice=eip",
            ),
            (&[0x0300_0001, 0, 0, 1 << 8, 0, 0], "cap_checkpoint_restore=ep"),
            (&[0x0100_0001, 1 << 10, 0], "cap_net_bind_service=ep"),
            (&[0x0200_0000, 0, 0, 0, 0], ""),
        ] {
            assert_eq!(text(&value(words)).unwrap(), expected);
        }
    }

    #[test]
    fn what_has_no_text_is_refused() {
        for (words, expected) in [
            (&[][..], "has 0 bytes"),
            (&[0x0200_0001, 1], "version 2 and 8 bytes"),
            (&[0x0400_0001, 1, 0, 0, 0], "version 4"),
            (&[0x0300_0001, 1, 0, 0, 0, 1000], "whose root is user 1000"),
            (&[0x0200_0001, 0, 0, 1 << 9, 0], "capability 41 has no name"),
        ] {
            let error = text(&value(words)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
