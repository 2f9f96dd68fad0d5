//! Target ids: the names of the GPU architectures (ISAs) that code objects are made for.
//!
//! `processor[:sramecc±][:xnack±]`, features in alphabetical order; a feature that is left out means
//! "any". A processor is a chip (`gfx90a`) or a generic one that several chips run
//! (`gfx11-generic`). The code object's own `e_flags` are what it really is; names and bundle ids
//! are only what somebody called it.
//!
//! Source of the numbers: LLVM's AMDGPUUsage (`EF_AMDGPU_MACH_*`, target-id features, generic
//! processors) and the ROCm build's families of targets.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is known of one processor.
#[derive(Debug)]
pub struct Processor {
    /// The name, e.g. `gfx1100` or `gfx11-generic`.
    pub name: &'static str,
    /// `EF_AMDGPU_MACH`: the low byte of `e_flags`.
    pub mach: u8,
    /// Whether code for it can be built with `sramecc+`/`sramecc-`.
    pub sramecc: bool,
    /// Whether code for it can be built with `xnack+`/`xnack-`.
    pub xnack: bool,
    /// The generic processor whose code it runs as well.
    pub generic: Option<&'static str>,
    /// The family that packages group it by (`gfx110X`); for a generic processor its own name.
    pub family: &'static str,
    /// Products, for people; empty for generic processors.
    pub products: &'static str,
}

macro_rules! processors {
    ($($name:literal $mach:literal $features:literal $generic:literal $family:literal $products:literal)*) => {
        &[$(Processor {
            name: $name,
            mach: $mach,
            sramecc: contains($features, b's'),
            xnack: contains($features, b'x'),
            generic: if $generic.is_empty() { None } else { Some($generic) },
            family: $family,
            products: $products,
        }),*]
    };
}

const fn contains(s: &str, byte: u8) -> bool {
    let bytes = s.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

/// Every processor that the ROCm runtime can meet. Features: `s` sramecc, `x` xnack.
#[rustfmt::skip]
pub const PROCESSORS: &[Processor] = processors! {
    "gfx801"  0x28 "x"  ""                "gfx801" "Carrizo"
    "gfx802"  0x29 ""   ""                "gfx802" "Tonga, Iceland"
    "gfx803"  0x2a ""   ""                "gfx803" "Fiji, Polaris: MI6, MI8, RX 580"
    "gfx805"  0x3c ""   ""                "gfx805" "Tonga Pro"
    "gfx810"  0x2b "x"  ""                "gfx810" "Stoney"
    "gfx900"  0x2c "x"  "gfx9-generic"    "gfx900" "Vega 10, MI25"
    "gfx902"  0x2d "x"  "gfx9-generic"    "gfx902" "Raven, Picasso"
    "gfx904"  0x2e "x"  "gfx9-generic"    "gfx904" "Vega 12"
    "gfx906"  0x2f "sx" "gfx9-generic"    "gfx906" "Radeon VII, MI50, MI60"
    "gfx908"  0x30 "sx" ""                "gfx908" "MI100"
    "gfx909"  0x31 "x"  "gfx9-generic"    "gfx909" "Raven2"
    "gfx90a"  0x3f "sx" ""                "gfx90a" "MI210, MI250, MI250X"
    "gfx90c"  0x32 "x"  "gfx9-generic"    "gfx90c" "Renoir, Lucienne, Cezanne, Barcelo"
    "gfx942"  0x4c "sx" "gfx9-4-generic"  "gfx94X" "MI300A, MI300X, MI308X, MI325X"
    "gfx950"  0x4f "sx" "gfx9-4-generic"  "gfx950" "MI350X, MI355X"
    "gfx1010" 0x33 "x"  "gfx10-1-generic" "gfx101X" "RX 5600, RX 5700"
    "gfx1011" 0x34 "x"  "gfx10-1-generic" "gfx101X" "Pro V520, 5600M"
    "gfx1012" 0x35 "x"  "gfx10-1-generic" "gfx101X" "RX 5500"
    "gfx1013" 0x42 "x"  "gfx10-1-generic" "gfx101X" "BC-250"
    "gfx1030" 0x36 ""   "gfx10-3-generic" "gfx103X" "RX 6800, RX 6900, W6800, V620"
    "gfx1031" 0x37 ""   "gfx10-3-generic" "gfx103X" "RX 6700, RX 6750"
    "gfx1032" 0x38 ""   "gfx10-3-generic" "gfx103X" "RX 6600"
    "gfx1033" 0x39 ""   "gfx10-3-generic" "gfx103X" "Van Gogh"
    "gfx1034" 0x3e ""   "gfx10-3-generic" "gfx103X" "RX 6400, RX 6500 XT"
    "gfx1035" 0x3d ""   "gfx10-3-generic" "gfx103X" "660M, 680M"
    "gfx1036" 0x45 ""   "gfx10-3-generic" "gfx103X" "610M"
    "gfx1100" 0x41 ""   "gfx11-generic"   "gfx110X" "RX 7900, W7800, W7900"
    "gfx1101" 0x46 ""   "gfx11-generic"   "gfx110X" "RX 7700, RX 7800 XT, W7700, V710"
    "gfx1102" 0x47 ""   "gfx11-generic"   "gfx110X" "RX 7600"
    "gfx1103" 0x44 ""   "gfx11-generic"   "gfx110X" "740M, 760M, 780M"
    "gfx1150" 0x43 ""   "gfx11-generic"   "gfx115X" "880M, 890M"
    "gfx1151" 0x4a ""   "gfx11-generic"   "gfx115X" "8040S, 8050S, 8060S"
    "gfx1152" 0x55 ""   "gfx11-generic"   "gfx115X" "840M, 860M"
    "gfx1153" 0x58 ""   "gfx11-generic"   "gfx115X" "820M, 840M"
    "gfx1154" 0x57 ""   "gfx11-generic"   "gfx115X" ""
    "gfx1170" 0x5d ""   "gfx11-7-generic" "gfx117X" ""
    "gfx1171" 0x5e ""   "gfx11-7-generic" "gfx117X" ""
    "gfx1200" 0x48 ""   "gfx12-generic"   "gfx120X" "RX 9060"
    "gfx1201" 0x4e ""   "gfx12-generic"   "gfx120X" "RX 9070, R9700"
    "gfx1250" 0x49 ""   "gfx12-5-generic" "gfx125X" "MI450 series"
    "gfx1251" 0x5a ""   "gfx12-5-generic" "gfx125X" ""
    "gfx9-generic"    0x51 "x"  "" "gfx9-generic" ""
    "gfx10-1-generic" 0x52 "x"  "" "gfx10-1-generic" ""
    "gfx10-3-generic" 0x53 ""   "" "gfx10-3-generic" ""
    "gfx11-generic"   0x54 ""   "" "gfx11-generic" ""
    "gfx12-generic"   0x59 ""   "" "gfx12-generic" ""
    "gfx12-5-generic" 0x5b ""   "" "gfx12-5-generic" ""
    "gfx9-4-generic"  0x5f "sx" "" "gfx9-4-generic" ""
    "gfx11-7-generic" 0x62 ""   "" "gfx11-7-generic" ""
    "gfx13-generic"   0x63 ""   "" "gfx13-generic" ""
};

/// The known processor of that name.
pub fn processor(name: &str) -> Option<&'static Processor> {
    PROCESSORS.iter().find(|p| p.name == name)
}

/// Why a string is no target id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The part before the first colon does not look like a processor.
    #[error(
        "`{0}` is not a GPU architecture (expected gfx and hex digits, as gfx1100, or a generic one, as gfx11-generic)"
    )]
    Processor(String),
    /// A feature that is not one, or out of order, or given twice.
    #[error(
        "`{0}` has the feature `{1}` (expected `:sramecc+`, `:sramecc-`, `:xnack+` or `:xnack-`, each once, in this order)"
    )]
    Feature(String, String),
}

/// A parsed target id. Ordered by name, which is the order in which everything is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TargetId {
    processor: String,
    sramecc: Option<bool>,
    xnack: Option<bool>,
}

impl TargetId {
    /// A target id without features.
    pub fn bare(processor: &str) -> Result<Self, TargetError> {
        let digits = processor.strip_prefix("gfx").unwrap_or_default();
        let digits = digits.strip_suffix("-generic").map_or(digits, |family| {
            // gfx10-3-generic: the family is digits, perhaps with one dash inside.
            if family.starts_with('-') || family.ends_with('-') { "" } else { family }
        });
        let generic = processor.ends_with("-generic");
        let good = (1..=8).contains(&digits.len())
            && digits.starts_with(|c: char| c.is_ascii_digit())
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f') || generic && b == b'-');
        if !good {
            return Err(TargetError::Processor(processor.to_owned()));
        }
        Ok(Self { processor: processor.to_owned(), sramecc: None, xnack: None })
    }

    /// What a code object's `e_flags` say it is for, or `None` for a processor that is not in the
    /// table. Fields: MACH `0xff`, xnack `0x300`, sramecc `0xc00` (code object V4 and later).
    pub fn from_e_flags(e_flags: u32) -> Option<Self> {
        let known = PROCESSORS.iter().find(|p| u32::from(p.mach) == e_flags & 0xff)?;
        // Values of both two-bit fields: 0 unsupported, 1 any, 2 off, 3 on.
        let feature = |shift: u32| match e_flags >> shift & 3 {
            2 => Some(false),
            3 => Some(true),
            _ => None,
        };
        Some(Self {
            processor: known.name.to_owned(),
            // gfx1250 always has xnack on; it is not part of the name.
            sramecc: feature(10).filter(|_| known.sramecc),
            xnack: feature(8).filter(|_| known.xnack),
        })
    }

    /// The processor: `gfx90a` of `gfx90a:xnack+`.
    pub fn processor(&self) -> &str {
        &self.processor
    }

    /// The table's entry for the processor, where it has one.
    pub fn known(&self) -> Option<&'static Processor> {
        processor(&self.processor)
    }

    /// Whether it names the processor alone.
    pub fn is_bare(&self) -> bool {
        self.sramecc.is_none() && self.xnack.is_none()
    }

    /// Whether it is a generic processor's id.
    pub fn is_generic(&self) -> bool {
        self.processor.ends_with("-generic")
    }

    /// The id without its features.
    #[must_use]
    pub fn without_features(&self) -> Self {
        Self { processor: self.processor.clone(), sramecc: None, xnack: None }
    }

    /// The ids under which the runtime looks for code for this one, in its order: the full id, each
    /// subset of its features, the bare processor.
    pub fn search_order(&self) -> Vec<Self> {
        let mut order = vec![self.clone()];
        for (sramecc, xnack) in [(self.sramecc, None), (None, self.xnack), (None, None)] {
            let subset = Self { processor: self.processor.clone(), sramecc, xnack };
            if !order.contains(&subset) {
                order.push(subset);
            }
        }
        order
    }

    /// The family that packages group it by: the table's, or the processor's name with its last
    /// digit replaced by `X` where the table does not know it.
    pub fn family(&self) -> String {
        match self.known() {
            Some(known) => known.family.to_owned(),
            None if self.is_generic() => self.processor.clone(),
            None => format!("{}X", &self.processor[..self.processor.len() - 1]),
        }
    }
}

impl FromStr for TargetId {
    type Err = TargetError;

    fn from_str(s: &str) -> Result<Self, TargetError> {
        let mut parts = s.split(':');
        let mut id = Self::bare(parts.next().unwrap_or_default())?;
        for part in parts {
            let bad = || TargetError::Feature(s.to_owned(), part.to_owned());
            let (name, on) = match part.as_bytes().last() {
                Some(b'+') => (&part[..part.len() - 1], true),
                Some(b'-') => (&part[..part.len() - 1], false),
                _ => return Err(bad()),
            };
            match name {
                "sramecc" if id.sramecc.is_none() && id.xnack.is_none() => id.sramecc = Some(on),
                "xnack" if id.xnack.is_none() => id.xnack = Some(on),
                _ => return Err(bad()),
            }
        }
        Ok(id)
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.processor)?;
        for (name, value) in [("sramecc", self.sramecc), ("xnack", self.xnack)] {
            if let Some(on) = value {
                write!(f, ":{name}{}", if on { '+' } else { '-' })?;
            }
        }
        Ok(())
    }
}

impl From<TargetId> for String {
    fn from(id: TargetId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for TargetId {
    type Error = TargetError;

    fn try_from(s: String) -> Result<Self, TargetError> {
        s.parse()
    }
}

/// A family of ISAs as databases name it: `gfx11xx` and `gfx110x` (an `x` is any digit), `gfx12_0`
/// (major and minor version, any stepping).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Family(String);

impl Family {
    /// Recognises a family's name; `None` for anything else, also for a plain ISA.
    pub fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("gfx")?;
        let good = matches!(digits.len(), 3..=5)
            && digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'x' | b'X' | b'_'))
            && digits.contains(['x', 'X', '_']);
        let family = Self(name.to_owned());
        (good && family.members().next().is_some()).then_some(family)
    }

    /// Whether an ISA, with or without features, belongs to it.
    pub fn contains(&self, isa: &TargetId) -> bool {
        let processor = isa.processor().as_bytes();
        let mut pattern: Vec<u8> = self.0.bytes().filter(|&b| b != b'_').collect();
        if pattern.len() < self.0.len() {
            pattern.push(b'x');
        }
        pattern.len() == processor.len()
            && pattern.iter().zip(processor).enumerate().all(|(i, (&p, &b))| {
                p == b || i >= 3 && matches!(p, b'x' | b'X') && b.is_ascii_hexdigit()
            })
    }

    /// Whether GPUs of the family run code for an ISA: its members, and the generic processors of
    /// those.
    pub fn runs(&self, isa: &TargetId) -> bool {
        let generic_of = |member: &TargetId| member.known().and_then(|known| known.generic);
        self.contains(isa)
            || isa.is_generic()
                && self.members().any(|member| generic_of(&member) == Some(isa.processor()))
    }

    /// The known processors that belong to it.
    pub fn members(&self) -> impl Iterator<Item = TargetId> {
        PROCESSORS
            .iter()
            .filter_map(|p| TargetId::bare(p.name).ok())
            .filter(|isa| self.contains(isa))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(s: &str) -> TargetId {
        s.parse().unwrap()
    }

    #[test]
    fn ids_come_back_as_they_were_written() {
        for s in ["gfx900", "gfx90a:xnack+", "gfx90a:sramecc+:xnack-", "gfx9-4-generic:xnack+"] {
            assert_eq!(id(s).to_string(), s);
        }
    }

    #[test]
    fn what_is_no_target_id_is_refused() {
        for s in [
            "",
            "gfx",
            "GFX900",
            "gfx90a:",
            "gfx90a:xnack",
            "gfx90a:xnack+:sramecc+",
            "gfx90g",
            "gfx90a:xnack+:xnack+",
            "gfx-generic",
            "gfx11-",
            "gfx1100/..",
            "gfxa",
            "generic",
        ] {
            assert!(s.parse::<TargetId>().is_err(), "{s}");
        }
    }

    #[test]
    fn e_flags_say_processor_and_features() {
        assert_eq!(TargetId::from_e_flags(0x041), Some(id("gfx1100")));
        assert_eq!(TargetId::from_e_flags(0x73f), Some(id("gfx90a:xnack+")));
        assert_eq!(TargetId::from_e_flags(0x63f), Some(id("gfx90a:xnack-")));
        assert_eq!(TargetId::from_e_flags(0x53f), Some(id("gfx90a")));
        assert_eq!(TargetId::from_e_flags(0xb3f), Some(id("gfx90a:sramecc-:xnack+")));
        assert_eq!(TargetId::from_e_flags(0x0100_0054), Some(id("gfx11-generic")));
        assert_eq!(TargetId::from_e_flags(0x349), Some(id("gfx1250")));
        assert_eq!(TargetId::from_e_flags(0xff), None);
    }

    #[test]
    fn the_runtime_tries_subsets_of_the_features() {
        let order: Vec<_> =
            id("gfx90a:sramecc+:xnack-").search_order().iter().map(ToString::to_string).collect();
        assert_eq!(order, ["gfx90a:sramecc+:xnack-", "gfx90a:sramecc+", "gfx90a:xnack-", "gfx90a"]);
        assert_eq!(id("gfx1100").search_order(), [id("gfx1100")]);
    }

    #[test]
    fn a_family_has_members() {
        let members = |name| -> Vec<String> {
            Family::parse(name).unwrap().members().map(String::from).collect()
        };
        assert_eq!(members("gfx110x"), ["gfx1100", "gfx1101", "gfx1102", "gfx1103"]);
        assert_eq!(members("gfx12_0"), ["gfx1200", "gfx1201"]);
        assert!(members("gfx11xx").contains(&"gfx1151".to_owned()));
        for none in ["gfx1100", "gfx77x", "gfxxxx", "gfx_", "x", "gfx11-generic"] {
            assert_eq!(Family::parse(none), None, "{none}");
        }
    }

    #[test]
    fn the_table_has_no_number_twice() {
        let mut machs: Vec<_> = PROCESSORS.iter().map(|p| p.mach).collect();
        machs.sort_unstable();
        machs.dedup();
        assert_eq!(machs.len(), PROCESSORS.len());
        for p in PROCESSORS {
            assert!(p.generic.is_none_or(|g| processor(g).is_some()), "{}", p.name);
        }
    }
}
