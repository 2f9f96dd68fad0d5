//! The table of damages. The one in `docs/verify.md` is made from it.

#![allow(clippy::enum_glob_use, reason = "the table is to be read")]

use std::fs;

use gfxpack::package::Format;
use gfxpack::package::spec::{Op, Relation, RelationKind};
use gfxpack::sign::Signer;

use crate::common::{gfxpack, ok};
use crate::damage::{Damage, damages};
use crate::packages::write;
use crate::repositories::signed;
use crate::victim::*;

pub const DAMAGES: &[Damage<Side>] = damages! {
    "index of the packages deleted" RPM "repo-index" |v| fs::remove_file(v.index()).unwrap();
    "index of the packages cut in half" BOTH "repo-index" |v| cut(&v.index());
    "bit flipped in the index of the packages" BOTH "repo-index" |v| flip(&v.index(), 20);
    "bit flipped in the list of files" RPM "repo-index" |v| flip(&v.find(&["-filelists.xml"]), 20);
    "bit flipped in Contents" APT "repo-index" |v| flip(&v.at("dists/stable/main/Contents-amd64.gz"), 20);
    "all forms of an index deleted" APT "repo-index" |v| {
        fs::remove_dir_all(v.at("dists/stable/main/binary-amd64")).unwrap()
    };
    "index of an older publication under its old name" APT "repo-index" |v| {
        let old = good().join("before/deb/dists/stable/main/binary-amd64/Packages.gz");
        replace(&v.at("dists/stable/main/binary-amd64/Packages.gz"), &fs::read(old).unwrap())
    };
    "index missing under its digest" APT "repo-index" |v| {
        let digest = digest(&fs::read(v.index()).unwrap());
        fs::remove_file(v.find(&["by-hash", &digest])).unwrap()
    };
    "compressed index of another text, signed" APT "repo-index" |v| {
        let text = v.text();
        let packed = zstd::encode_all(&b"Package: x\n"[..], 3).unwrap();
        let path = "main/binary-amd64/Packages.zst";
        let line = text.lines().find(|line| line.ends_with(path) && line.len() < 120).unwrap();
        let by_hash = v.at("dists/stable/main/binary-amd64/by-hash/SHA256").join(digest(&packed));
        fs::write(by_hash, &packed).unwrap();
        replace(&v.at("dists/stable").join(path), &packed);
        v.top_text(&text.replace(line, &format!(" {} {} {path}", digest(&packed), packed.len())))
    };
    "top file deleted" RPM "repo-index" |v| fs::remove_file(v.top()).unwrap();
    "Release and InRelease deleted" APT "repo-index" |v| {
        fs::remove_file(v.top()).unwrap();
        fs::remove_file(v.at("dists/stable/Release")).unwrap()
    };
    "Release of an older publication beside InRelease" APT "repo-index" |v| {
        for name in ["Release", "Release.gpg"] {
            let old = fs::read(good().join("before/deb/dists/stable").join(name)).unwrap();
            replace(&v.at("dists/stable").join(name), &old);
        }
    };
    "Release without a date, signed" APT "repo-index" |v| {
        let text = v.text();
        let line = text.lines().find(|line| line.starts_with("Date:")).unwrap().to_owned();
        v.top_text(&text.replace(&format!("{line}\n"), ""))
    };
    "Valid-Until that is no date, signed" APT "repo-index" |v| {
        v.top_text(&v.text().replacen("Date:", "Valid-Until: soon\nDate:", 1))
    };
    "metadata that are no XML, signed" RPM "repo-index" |v| v.edit(|text| text.replace("</package>", ""));
    "metadata that say another number of packages, signed" RPM "repo-index" |v| {
        v.edit(|text| text.replacen("packages=\"8\"", "packages=\"9\"", 1))
    };
    "list of files without a package, signed" RPM "repo-index" |v| {
        let old = v.find(&["-filelists.xml"]);
        let text = String::from_utf8(zstd::decode_all(&fs::read(&old).unwrap()[..]).unwrap()).unwrap();
        let (start, end) = (text.find("<package ").unwrap(), text.find("</package>\n").unwrap() + 11);
        let text = text.replace(&text[start..end], "").replace("packages=\"8\"", "packages=\"7\"");
        v.document(&old, text.as_bytes())
    };
    "package at a path that leaves the repository, signed" BOTH "repo-index" |v| {
        v.edit(|text| text.replacen("Filename: pool/", "Filename: ../deb/pool/", 1)
            .replacen("href=\"Packages/", "href=\"../rpm/Packages/", 1))
    };

    "index missing under its SHA512" APT "repo-index" |v| {
        fs::remove_dir_all(v.at("dists/stable/main/binary-amd64/by-hash/SHA512")).unwrap()
    };
    "another SHA512 of an index than of its SHA256, signed" APT "repo-index" |v| {
        let text = v.text();
        let (before, after) = text.split_once("SHA512:\n").unwrap();
        v.top_text(&format!("{before}SHA512:\n{}", after.replace(['1', '2'], "3")))
    };
    "component without an index, signed" APT "repo-index" |v| {
        v.top_text(&v.text().replace("Components: main", "Components: main more"))
    };
    "valid until before its date, signed" APT "repo-index" |v| {
        let until = "Valid-Until: Thu, 01 Jan 2015 00:00:00 +0000\nAcquire-By-Hash";
        v.top_text(&v.text().replace("Acquire-By-Hash", until))
    };
    "package for another architecture in an index, signed" APT "repo-entry" |v| {
        v.edit(|text| text.replacen("Architecture: amd64", "Architecture: arm64", 1))
    };
    "two packages of one name and version, signed" BOTH "repo-entry" |v| {
        let (path, other) = (v.package(), v.package().with_file_name("other"));
        let (good, mut bytes) = (fs::read(&path).unwrap(), fs::read(&path).unwrap());
        // A signature, or the time of a member.
        let at = if v.side == Deb { 27 } else { 30 };
        bytes[at] ^= 1;
        fs::write(other, &bytes).unwrap();
        v.edit(|text| {
            let ends = if v.side == Deb { "\n\n" } else { "</package>\n" };
            let mine = digest(&good);
            let one = text.split_inclusive(ends).find(|one| one.contains(&mine)).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            let second = one.replace(&mine, &digest(&bytes)).replace(name, "other");
            let begins = one.find(if v.side == Deb { "Package:" } else { "<package " }).unwrap();
            text.replacen(one, &format!("{one}{}", &second[begins..]), 1)
        })
    };
    "file left out of the list of files, signed" RPM "repo-entry" |v| {
        let old = v.find(&["-filelists.xml"]);
        let text = String::from_utf8(zstd::decode_all(&fs::read(&old).unwrap()[..]).unwrap()).unwrap();
        let from = text.find("  <file>").unwrap();
        let to = from + text[from..].find('\n').unwrap() + 1;
        v.document(&old, [&text[..from], &text[to..]].concat().as_bytes())
    };
    "repomd.xml.key of another key" RPM "repo-signature" |v| {
        let other = Signer::from_key(&other_key(), None).unwrap();
        fs::write(v.at("repodata/repomd.xml.key"), other.public_key().unwrap().to_armored().unwrap()).unwrap()
    };

    "package deleted" BOTH "repo-file" |v| fs::remove_file(v.package()).unwrap();
    "package cut in half" BOTH "repo-file" |v| cut(&v.package());
    "bit flipped in a package" BOTH "repo-file" |v| flip(&v.package(), 30);
    "package replaced by that of another release" BOTH "repo-file" |v| {
        let path = v.package();
        let other = path.to_string_lossy().replace("7.2.0", "7.1.0");
        replace(&path, &fs::read(other).unwrap())
    };
    "digest of a package edited, signed" BOTH "repo-file" |v| {
        let digest = digest(&fs::read(v.package()).unwrap());
        v.edit(|text| text.replace(&digest, &digest.replace(['1', '2'], "3")))
    };

    "version edited in the index, signed" BOTH "repo-entry" |v| {
        v.edit(|text| text.replacen("Version: 7.2.0-1", "Version: 7.3.0-1", 1)
            .replacen("ver=\"7.2.0\"", "ver=\"7.3.0\"", 1))
    };
    "name edited in the index, signed" BOTH "repo-entry" |v| {
        v.edit(|text| text.replacen("Package: hip-runtime", "Package: hip-runtime2", 1)
            .replacen("<name>hip-runtime<", "<name>hip-runtime2<", 1))
    };
    "relation edited in the index, signed" BOTH "repo-entry" |v| {
        v.edit(|text| text.replacen("rocblas-generic (= 7.2.0-1)", "rocblas-generic (>= 7.2.0-1)", 1)
            .replacen("name=\"rocblas-generic\" flags=\"EQ\" epoch=\"0\" ver=\"7.2.0\" rel=\"1\"/>\n    </rpm:requires",
                "name=\"rocblas-generic\" flags=\"GE\" epoch=\"0\" ver=\"7.2.0\" rel=\"1\"/>\n    </rpm:requires", 1))
    };
    "package of garbage, with its digest in the index, signed" BOTH "package-damaged" |v| {
        let path = v.package();
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[..8].copy_from_slice(b"garbage!");
        replace(&path, &bad);
        v.edit(|text| text.replace(&digest(&good), &digest(&bad)))
    };
    "header of a package damaged, with its digest in the index, signed" RPM "package-damaged" |v| {
        let path = v.package();
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        let at = good.windows(15).rposition(|w| w == b"rocblas-gfx110X").unwrap();
        bad[at] = b'R';
        replace(&path, &bad);
        v.edit(|text| text.replace(&digest(&good), &digest(&bad)))
    };

    "top file edited" BOTH "repo-signature" |v| {
        let text = fs::read_to_string(v.top()).unwrap();
        replace(&v.top(), text.replacen("stable", "stab1e", 1).replacen("<revision>", "<revision>1", 1).as_bytes())
    };
    "Release edited" APT "repo-signature" |v| {
        let text = v.text();
        replace(&v.at("dists/stable/Release"), text.replacen("Suite", "suite", 1).as_bytes())
    };
    "top file signed by another key" BOTH "repo-signature" |v| v.top_signed_by(&v.text(), &other_key());
    "repomd.xml.asc deleted" RPM "repo-signature" |v| {
        fs::remove_file(v.at("repodata/repomd.xml.asc")).unwrap()
    };
    "repomd.xml.asc of an older publication" RPM "repo-signature" |v| {
        let old = good().join("before/rpm/repodata/repomd.xml.asc");
        replace(&v.at("repodata/repomd.xml.asc"), &fs::read(old).unwrap())
    };
    "InRelease and Release.gpg deleted" APT "repo-signature" |v| {
        fs::remove_file(v.top()).unwrap();
        fs::remove_file(v.at("dists/stable/Release.gpg")).unwrap()
    };
    "text before a signed message" APT "repo-signature" |v| {
        let text = fs::read_to_string(v.top()).unwrap();
        replace(&v.top(), format!("Suite: other\n{text}").as_bytes())
    };
    "package without a signature among signed ones" RPM "repo-unsigned" |v| {
        v.add_with(&[extra("plain", "opt/plain", "x")], &[])
    };
    "package signed by another key" RPM "repo-signature" |v| {
        let key = v.dir.path().join("other.key");
        fs::write(&key, other_key()).unwrap();
        let rpm = write(&extra("other", "opt/other", "x"), Format::Rpm, v.dir.path());
        ok(gfxpack().arg("sign").arg(&rpm).arg("--sign-key").arg(key));
        ok(signed("add", &v.path()).arg(rpm))
    };

    "text that is no signature where rpm 6 has its signatures" RPM "repo-signature" |v| {
        // Of a package that is not signed the SHA1 of the header.
        let rpm = write(&extra("plain", "opt/plain", "x"), Format::Rpm, v.dir.path());
        renumber(&rpm, 269, 278);
        ok(signed("add", &v.path()).arg(rpm))
    };
    "signature of rpm 6 by another key" RPM "repo-signature" |v| {
        let rpm = signed_for_rpm6(v.dir.path(), &other_key());
        ok(signed("add", &v.path()).arg(rpm))
    };

    "suite that is not there in .sources" APT "repo-client-file" |v| {
        v.in_file("gfxpack.sources", "Suites: stable", "Suites: nightly")
    };
    "component that is not there in .sources" APT "repo-client-file" |v| {
        v.in_file("gfxpack.sources", "Components: main", "Components: main more")
    };
    ".sources of another place" APT "repo-client-file" |v| {
        v.in_file("gfxpack.sources", "example.org/rocm/deb", "example.org/rocm")
    };
    ".sources with another key" APT "repo-client-file" |v| {
        let other = Signer::from_key(&other_key(), None).unwrap();
        let key = String::from_utf8(other.public_key().unwrap().to_armored().unwrap()).unwrap();
        let lines = key.lines().map(|line| format!(" {}\n", if line.is_empty() { "." } else { line }));
        let text = fs::read_to_string(v.at("gfxpack.sources")).unwrap();
        let start = text.find(" -----BEGIN").unwrap();
        replace(&v.at("gfxpack.sources"), (text[..start].to_owned() + &lines.collect::<String>()).as_bytes())
    };
    ".sources with half a key" APT "repo-client-file" |v| cut(&v.at("gfxpack.sources"));
    ".repo of another place than .sources" RPM "repo-client-file" |v| {
        v.in_file("gfxpack.repo", "https://repo.example.org", "https://mirror.example.org")
    };
    ".repo with a key elsewhere" RPM "repo-client-file" |v| {
        v.in_file("gfxpack.repo", "gpgkey=https://repo", "gpgkey=https://mirror")
    };
    ".repo without a key" RPM "repo-client-file" |v| v.in_file("gfxpack.repo", "gpgkey=", "#=");
    ".repo without an address" RPM "repo-client-file" |v| v.in_file("gfxpack.repo", "baseurl=", "url=");
    "key of .repo deleted" RPM "repo-client-file" |v| {
        fs::remove_file(v.at("repodata/repomd.xml.key")).unwrap()
    };

    "package that only its owner may read" BOTH "repo-mode" |v| v.chmod(&v.package(), 0o600);
    "directory of packages that only its owner may enter" BOTH "repo-mode" |v| {
        v.chmod(v.package().parent().unwrap(), 0o700)
    };
    "index that only its owner may read" BOTH "repo-mode" |v| v.chmod(&v.index(), 0o640);
    "directory of indices that only its owner may enter" BOTH "repo-mode" |v| {
        v.chmod(v.top().parent().unwrap(), 0o700)
    };

    "Valid-Until that is over, signed" APT "repo-expired" |v| {
        let until = "Valid-Until: Wed, 07 Jan 2026 15:33:19 UTC\n";
        v.top_text(&v.text().replacen("Date:", &format!("{until}Date:"), 1))
    };

    "generic package removed" BOTH "relation-unmet" |v| {
        ok(signed("remove", &v.path()).args(["rocblas-generic=7.2.0-1", "--allow-partial"])
            .args(["--format", v.format().as_str()]))
    };
    "package that needs a version which is not there" BOTH "relation-unmet" |v| {
        let mut package = extra("more", "opt/more", "x");
        let version = Some((Op::GreaterEqual, "8".to_owned()));
        package.relate(RelationKind::Depends, Relation { name: "hip-runtime".into(), constraint: version });
        v.add(&[package])
    };

    "library in another package as well" BOTH "file-conflict" |v| {
        v.add(&[extra("copycat", LIBRARY, "x")])
    };
    "file in two new packages" BOTH "file-conflict" |v| {
        v.add(&[extra("one", "opt/same", "1"), extra("two", "opt/same", "2")])
    };

    "repository of the older release alone" BOTH "repo-downgrade" |v| v.remake(&v.files(0), "1767226000");
    "packages of an older release than clients have" BOTH "repo-downgrade" |v| {
        let mut older = Vec::new();
        for name in ["hip-runtime", "rocblas-generic"] {
            let mut package = extra(name, &format!("opt/{name}"), "x");
            package.version = "7.0.0".into();
            older.push(write(&package, v.format(), v.dir.path()));
        }
        v.remake(&older, LATE)
    };
    "package gone" BOTH "repo-downgrade" |v| {
        let mut files = v.files(1);
        files.retain(|path| !path.to_string_lossy().to_lowercase().contains("gfx120x"));
        v.remake(&files, LATE)
    };
    "one of the two formats gone" BOTH "repo-downgrade" |v| fs::remove_dir_all(v.at("")).unwrap();
    "older date, signed" BOTH "repo-downgrade" |v| {
        let text = v.text();
        let line = text.lines().find(|line| line.starts_with("Date:") || line.contains("<revision>")).unwrap();
        let new = match v.side {
            Deb => "Date: Thu, 01 Jan 2015 00:00:00 UTC",
            Rpm => "  <revision>1420070400</revision>",
        };
        v.top_text(&text.replace(line, new))
    };
    "package built again under the same version" BOTH "repo-changed" |v| {
        let again = extra("hip-runtime", "opt/again", "x");
        let mut files = v.files(1);
        files.push(write(&again, v.format(), v.dir.path()));
        v.remake(&files, LATE)
    };
};
