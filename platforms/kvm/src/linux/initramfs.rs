//! The initial file system: a `cpio` archive (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).

/// Mode of a regular executable file, `S_IFREG | 0755`.
const MODE: u32 = 0o100_755;

/// Returns an archive of `files`, each a name and its content.
pub(crate) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (number, (name, content)) in (1..).zip(files) {
        entry(&mut archive, number, MODE, name, content);
    }
    entry(&mut archive, 0, 0, "TRAILER!!!", &[]);
    archive
}

/// Appends one file: thirteen fields of eight digits, the name, the content, each padded to 4 bytes.
fn entry(archive: &mut Vec<u8>, inode: u32, mode: u32, name: &str, content: &[u8]) {
    let (name_bytes, content_bytes) = (name.len() as u32 + 1, content.len() as u32);
    archive.extend(b"070701");
    // Inode, mode, owner, group, links, time, length, device (two), node (two), length of the name, checksum.
    let fields = [inode, mode, 0, 0, 1, 0, content_bytes, 0, 0, 0, 0, name_bytes, 0];
    fields
        .iter()
        .for_each(|field| archive.extend(format!("{field:08X}").bytes()));
    archive.extend(name.bytes());
    archive.push(0);
    pad(archive);
    archive.extend(content);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_names_and_contents_are_aligned() {
        let archive = archive(&[("init", b"12345"), ("orders", b"")]);
        let headers: Vec<usize> = (0..archive.len() - 5)
            .filter(|&at| &archive[at..at + 6] == b"070701")
            .collect();
        assert_eq!(headers.len(), 3);
        assert!(headers.iter().all(|at| at % 4 == 0));
        // 110 bytes of header, "init" with its terminator, padding.
        assert_eq!(&archive[116..121], b"12345");
        assert_eq!(&archive[54..62], b"00000005");
    }
}
