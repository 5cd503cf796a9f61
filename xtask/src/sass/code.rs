//! nvdisasm's listing: instructions, labels and loops.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// The instructions of one entry, in order.
pub struct Code {
    /// Opcodes, without predicates, modifiers and operands.
    opcodes: Vec<String>,
    /// Unconditional exits.
    exits: Vec<usize>,
    /// (from, to) of every branch.
    branches: Vec<(usize, usize)>,
}

/// Instructions from a branch's target to the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    first: usize,
    last: usize,
}

impl Loop {
    /// Instructions.
    pub fn len(&self) -> u32 {
        (self.last - self.first + 1) as u32
    }

    /// Whether the other lies inside, and is not the same.
    pub fn holds(&self, other: &Loop) -> bool {
        self != other && self.first <= other.first && other.last <= self.last
    }
}

impl Code {
    /// Reads the section of an entry.
    pub fn parse(text: &str, entry: &str) -> Result<Self> {
        let start = format!("\n.text.{entry}:");
        let (_, section) = text
            .split_once(&start)
            .with_context(|| format!("nvdisasm printed no section .text.{entry}"))?;
        let section = section.split("\n//------").next().unwrap_or(section);
        let mut code = Code {
            opcodes: vec![],
            exits: vec![],
            branches: vec![],
        };
        let mut labels = BTreeMap::new();
        let mut jumps = Vec::new();
        for line in section.lines().map(str::trim) {
            if let Some(label) = line.strip_suffix(':') {
                labels.insert(label, code.opcodes.len());
                continue;
            }
            // `/*0190*/  @!P0 BRA P1, `(.L_x_7) ;`
            let Some(instruction) = line
                .strip_prefix("/*")
                .and_then(|rest| rest.split_once("*/"))
                .map(|(_, rest)| rest.trim())
                .filter(|rest| !rest.is_empty())
            else {
                continue;
            };
            let mut words = instruction.split_whitespace();
            let first = words.next().unwrap_or_default();
            let guarded = first.starts_with('@');
            let word = if guarded {
                words.next().unwrap_or_default()
            } else {
                first
            };
            let opcode = word.split('.').next().unwrap_or(word);
            if opcode == "EXIT" && !guarded {
                code.exits.push(code.opcodes.len());
            }
            if opcode == "BRA"
                && let Some((_, target)) = instruction.split_once("`(")
            {
                let target = target.split(')').next().unwrap_or(target);
                jumps.push((code.opcodes.len(), target));
            }
            code.opcodes.push(opcode.to_string());
        }
        for (from, label) in jumps {
            let to = *labels
                .get(label)
                .with_context(|| format!("{entry}: no label {label}"))?;
            code.branches.push((from, to));
        }
        Ok(code)
    }

    /// Instructions of an opcode in a loop.
    pub fn count(&self, within: &Loop, opcode: &str) -> u32 {
        let range = &self.opcodes[within.first..=within.last];
        range.iter().filter(|&found| found == opcode).count() as u32
    }

    /// Loops, each once: a branch backwards closes one, unless the program ends in between. Then
    /// the branch stands in code that was moved behind the end, and leads back to where it left.
    /// Branches to one target are one loop, up to the last of them.
    pub fn loops(&self) -> Vec<Loop> {
        let mut last_of = BTreeMap::new();
        for &(from, to) in &self.branches {
            let ends = self.exits.iter().any(|exit| (to..from).contains(exit));
            if to < from && !ends {
                let last = last_of.entry(to).or_insert(from);
                *last = from.max(*last);
            }
        }
        let all = last_of.into_iter();
        all.map(|(first, last)| Loop { first, last }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "
//--------------------- .text.other --------------------------
.text.other:
        /*0000*/                   FFMA R1, R1, R1, R1 ;
//--------------------- .text.one --------------------------
\t.section\t.text.one,\"ax\",@progbits
.text.one:
        /*0000*/              @!P0 BRA `(.L_x_2) ;
.L_x_1:
        /*0010*/                   LDGSTS.E.BYPASS.128 [R1], desc[UR4][R2.64], !P3 ;
.L_x_3:
        /*0020*/                   BRA.DIV UR4, `(.L_x_4) ;
.L_x_5:
        /*0030*/                   HMMA.16816.F32 R4, R4, R4, R4 ;
        /*0040*/              @!P2 BRA `(.L_x_3) ;
        /*0050*/              @!P1 BRA `(.L_x_1) ;
.L_x_2:
        /*0060*/                   EXIT ;
.L_x_4:
        /*0070*/                   WARPSYNC.COLLECTIVE R9, `(.L_x_5) ;
        /*0080*/                   BRA `(.L_x_5) ;
.L_x_6:
        /*0090*/                   BRA `(.L_x_6);
//--------------------- .text.after --------------------------
";

    #[test]
    fn loops_end_at_branches_backwards_and_do_not_reach_past_the_exit() {
        let code = Code::parse(LISTING, "one").unwrap();
        assert_eq!(code.opcodes.len(), 10);
        let loops = code.loops();
        let (outer, inner) = (Loop { first: 1, last: 5 }, Loop { first: 2, last: 4 });
        assert_eq!(loops, [outer, inner]);
        assert!(outer.holds(&inner) && !inner.holds(&outer) && !outer.holds(&outer));
        assert_eq!([outer.len(), inner.len()], [5, 3]);
        assert_eq!(
            [code.count(&outer, "LDGSTS"), code.count(&inner, "LDGSTS")],
            [1, 0]
        );
        assert_eq!(code.count(&outer, "HMMA"), 1);
    }

    #[test]
    fn a_missing_entry_is_an_error() {
        let error = Code::parse(LISTING, "two").err().unwrap().to_string();
        assert_eq!(error, "nvdisasm printed no section .text.two");
    }
}
