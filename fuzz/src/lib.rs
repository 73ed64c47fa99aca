//! The entries of the fuzz targets. The test suite of the laboratory includes the same files and runs them on the seeds.

pub mod machine;
pub mod records;
