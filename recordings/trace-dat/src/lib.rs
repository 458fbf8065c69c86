//! Reads trace.dat, the file that trace-cmd writes: versions 6 and 7.
