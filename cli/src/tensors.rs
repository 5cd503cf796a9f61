//! Safetensors files: 8 bytes with the header's length, a JSON header, the tensors' bytes.
//!
//! Tensors are read one by one into memory of their own: once, and aligned whatever the header's
//! length. Everything that a header says is checked before it is believed, by the format's rules: no
//! name twice, and tensors that lie side by side over all of the data, without overlap or hole.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use safetensors::Dtype;
use serde::de::value::{Error as NameError, StrDeserializer};
use serde::de::{Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::buffer::{Buffer, Number, bytes_of};
use crate::error::Error;
use crate::text::quoted;

/// Longest header that readers of the format accept.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Bytes between two steps of the progress bar.
const CHUNK: usize = 16 << 20;

/// What a header says of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorInfo {
    /// The storage type's name, which need not be one of the format's.
    pub dtype: String,
    pub shape: Vec<usize>,
    /// First byte in the data and the first past the tensor.
    pub data_offsets: (usize, usize),
}

impl TensorInfo {
    /// The storage type, if the format has one of that name.
    pub fn known_dtype(&self) -> Option<Dtype> {
        let name: StrDeserializer<'_, NameError> = self.dtype.as_str().into_deserializer();
        Dtype::deserialize(name).ok()
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    #[serde(rename = "__metadata__", default)]
    metadata: Names<String>,
    #[serde(flatten)]
    tensors: Names<TensorInfo>,
}

/// Values by name; a name that comes twice is refused.
#[derive(Serialize)]
#[serde(transparent)]
struct Names<T>(BTreeMap<String, T>);

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Names<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(Names<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Names<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Names<T>, A::Error> {
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    let twice = format!("{} is given twice, names must differ", quoted(&name));
                    if self.0.0.insert(name, value).is_some() {
                        return Err(A::Error::custom(twice));
                    }
                }
                Ok(self.0)
            }
        }
        deserializer.deserialize_map(Entries(Names::default()))
    }
}

/// An open file with a checked header.
pub struct TensorFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    data_start: u64,
    header: Header,
}

impl TensorFile {
    /// Opens a file and reads its header; where its tensors lie is for [`TensorFile::check_ranges`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut file = File::open(path).map_err(Error::read(path))?;
        let metadata = file.metadata().map_err(Error::read(path))?;
        let bytes = metadata.len();
        let path_buf = path.to_owned();
        if !metadata.is_file() {
            if metadata.is_dir() {
                // A folder opens, and its read says what it is.
                file.read(&mut [0]).map_err(Error::read(path))?;
            }
            return Err(Error::NotRegular { path: path_buf });
        }
        if bytes < 8 {
            let found = bytes;
            return Err(Error::NoHeader {
                path: path_buf,
                found,
            });
        }
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(Error::read(path))?;
        let length = u64::from_le_bytes(length);
        if length > bytes - 8 {
            return Err(Error::HeaderPastEnd {
                path: path_buf,
                header: length,
                file: bytes,
            });
        }
        if length > MAX_HEADER_BYTES {
            return Err(Error::HeaderTooLong {
                path: path_buf,
                header: length,
                max: MAX_HEADER_BYTES,
            });
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(Error::read(path))?;
        if let Some(&first) = header.first().filter(|&&first| first != b'{') {
            let path = path_buf;
            return Err(Error::HeaderStart { path, first });
        }
        let header: Header =
            serde_json::from_slice(&header).map_err(|source| Error::HeaderSyntax {
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            path: path_buf,
            file,
            bytes,
            data_start: 8 + length,
            header,
        })
    }

    /// Checks that every tensor's byte range is as long as its shape says, and that the ranges cover
    /// the data without overlap or hole.
    pub fn check_ranges(&self) -> Result<(), Error> {
        let data = self.bytes - self.data_start;
        for (name, info) in &self.header.tensors.0 {
            check_range(&self.path, name, info, data)?;
        }
        let mut tensors: Vec<_> = self.header.tensors.0.iter().collect();
        tensors.sort_by_key(|(_, info)| info.data_offsets);
        let (mut end, mut before) = (0, None);
        for (name, info) in tensors {
            if info.data_offsets.0 != end {
                return Err(Error::NotSideBySide {
                    path: self.path.clone(),
                    tensor: name.clone(),
                    start: info.data_offsets.0,
                    end,
                    before,
                });
            }
            (end, before) = (info.data_offsets.1, Some(name.clone()));
        }
        if end as u64 != data {
            let path = self.path.clone();
            return Err(Error::TrailingData { path, data, end });
        }
        Ok(())
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A tensor's description, if the file has it.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.header.tensors.0.get(name)
    }

    /// A metadata value.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata.0.get(key).map(String::as_str)
    }

    /// Reads a tensor whose storage type has the size of `T`.
    pub fn read<T: Number>(
        &mut self,
        tensor: &'static str,
        progress: &ProgressBar,
    ) -> Result<Buffer<T>, Error> {
        // A tensor that the file lacks is one without bytes: whoever reads has asked `info`.
        let (start, end) = self.info(tensor).map_or((0, 0), |info| info.data_offsets);
        let mut buffer = Buffer::zeroed(tensor, (end - start) / size_of::<T>())?;
        let start = SeekFrom::Start(self.data_start + start as u64);
        self.file.seek(start).map_err(Error::read(&self.path))?;
        for chunk in buffer.bytes_mut().chunks_mut(CHUNK) {
            self.file
                .read_exact(chunk)
                .map_err(Error::read(&self.path))?;
            progress.inc(chunk.len() as u64);
        }
        Ok(buffer)
    }
}

fn check_range(path: &Path, tensor: &str, info: &TensorInfo, data: u64) -> Result<(), Error> {
    let path = path.to_owned();
    let tensor = tensor.to_owned();
    let dims = info.shape.clone();
    let Some(dtype) = info.known_dtype() else {
        let dtype = info.dtype.clone();
        return Err(Error::UnknownDtype {
            path,
            tensor,
            dtype,
        });
    };
    let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let bits = elements.and_then(|n| n.checked_mul(dtype.bitsize()));
    let Some(bits) = bits else {
        return Err(Error::ShapeOverflow {
            path,
            tensor,
            dims,
            dtype,
        });
    };
    if bits % 8 != 0 {
        return Err(Error::PartOfByte {
            path,
            tensor,
            dims,
            dtype,
            bits,
        });
    }
    let needed = bits / 8;
    let (start, end) = info.data_offsets;
    if end.checked_sub(start) != Some(needed) {
        return Err(Error::ByteRange {
            path,
            tensor,
            dims,
            dtype,
            offsets: (start, end),
            needed,
        });
    }
    if end as u64 > data {
        return Err(Error::DataPastEnd {
            path,
            tensor,
            end,
            data,
        });
    }
    Ok(())
}

/// A tensor to write.
pub struct Tensor<'a> {
    name: &'static str,
    shape: Vec<usize>,
    dtype: Dtype,
    bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// A dense tensor; `values` has as many elements as `shape` says.
    pub fn new<T: Number>(name: &'static str, shape: &[usize], values: &'a [T]) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len(), "{name}");
        Self {
            name,
            shape: shape.to_vec(),
            dtype: T::FILE_DTYPE,
            bytes: bytes_of(values),
        }
    }
}

/// Writes a file's bytes. The tensors stand in the given order, which should be one of descending
/// element sizes: then all of them are aligned.
pub fn write(
    to: &mut dyn Write,
    tensors: &[Tensor<'_>],
    metadata: &[(&str, String)],
    progress: &ProgressBar,
) -> std::io::Result<()> {
    let mut header = Header {
        metadata: Names(
            metadata
                .iter()
                .map(|(key, value)| (key.to_string(), value.clone()))
                .collect(),
        ),
        tensors: Names::default(),
    };
    let mut end = 0;
    for tensor in tensors {
        let start = end;
        end += tensor.bytes.len();
        let info = TensorInfo {
            dtype: tensor.dtype.to_string(),
            shape: tensor.shape.clone(),
            data_offsets: (start, end),
        };
        header.tensors.0.insert(tensor.name.into(), info);
    }
    let mut header = serde_json::to_vec(&header)?;
    // With the 8 bytes before it: the data begin at a multiple of 64 in the file.
    let padded = (8 + header.len()).next_multiple_of(64) - 8;
    header.resize(padded, b' ');
    to.write_all(&(header.len() as u64).to_le_bytes())?;
    to.write_all(&header)?;
    for tensor in tensors {
        for chunk in tensor.bytes.chunks(CHUNK) {
            to.write_all(chunk)?;
            progress.inc(chunk.len() as u64);
        }
    }
    Ok(())
}

/// Bytes that [`write()`] counts on the progress bar.
pub fn data_bytes(tensors: &[Tensor<'_>]) -> u64 {
    tensors.iter().map(|tensor| tensor.bytes.len() as u64).sum()
}
