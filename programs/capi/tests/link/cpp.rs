//! C++ programs use the classes of `holdfast.hpp`, and find the installed library.

use std::path::Path;
use std::process::Command;

use super::{LIBRARIES, here, install, library, pkg_config, scratch, succeed};

const STRICT: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Werror",
];

/// Returns the compilers for C++ that are there: `$CXX`, or those of GNU and LLVM. Prints a message for each that is
/// not.
fn compilers() -> Vec<String> {
    let named = std::env::var("CXX").map(|named| vec![named]);
    let mut found = named.unwrap_or_else(|_| ["g++", "clang++"].map(str::to_owned).into());
    found.retain(|name| {
        let there = Command::new(name).arg("--version").output().is_ok();
        if !there {
            println!("SKIPPED: there is no {name}");
        }
        there
    });
    found
}

fn source() -> std::path::PathBuf {
    here().join("tests/link/types.cpp")
}

fn assert_kept(program: &Path) {
    assert_eq!(succeed(&mut Command::new(program)), "all kept\n");
}

#[test]
fn a_cpp_program_finds_every_promise_kept() {
    let folder = scratch();
    for compiler in compilers() {
        let program = folder.path().join("types");
        let mut cxx = Command::new(compiler);
        cxx.args(STRICT).arg("-I").arg(here().join("include"));
        cxx.arg(source()).arg(library()).args(LIBRARIES);
        succeed(cxx.arg("-o").arg(&program));
        assert_kept(&program);
    }
}

/// The header of C alone is also C++ of an older standard.
#[test]
fn the_header_for_c_is_cpp_of_2011() {
    let folder = scratch();
    let file = folder.path().join("only.cpp");
    std::fs::write(
        &file,
        "#include <holdfast.h>\nholdfast_cond_t cond = HOLDFAST_COND_INIT;\n",
    )
    .expect("writable");
    for compiler in compilers() {
        let mut cxx = Command::new(compiler);
        cxx.args([
            "-std=c++11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
            "-I",
        ]);
        succeed(cxx.arg(here().join("include")).arg(&file));
    }
}

const PROJECT: &str = r#"
cmake_minimum_required(VERSION 3.10)
project(types CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(holdfast 0.1 REQUIRED)
find_package(holdfast REQUIRED)
add_compile_options(-Wall -Wextra -Werror)
add_executable(types types.cpp)
target_link_libraries(types holdfast::holdfast)
add_executable(types-static types.cpp)
target_link_libraries(types-static holdfast::static)
"#;

#[test]
fn an_installed_library_is_found_by_cmake_and_pkg_config() {
    let Some(compiler) = compilers().into_iter().next() else {
        return;
    };
    let folder = scratch();
    let (prefix, project) = (folder.path().join("pre fix"), folder.path().join("project"));
    install(&prefix);
    std::fs::create_dir(&project).expect("a new folder");
    std::fs::copy(source(), project.join("types.cpp")).expect("readable");

    match pkg_config(&prefix, &["--cflags", "--libs"]) {
        Ok(flags) => {
            let program = folder.path().join("types");
            let mut cxx = Command::new(&compiler);
            cxx.arg("-std=c++17").arg(source()).args(flags).args(["-pthread", "-o"]);
            succeed(cxx.arg(&program));
            let mut run = Command::new(&program);
            assert_eq!(succeed(run.env("LD_LIBRARY_PATH", prefix.join("lib"))), "all kept\n");
        }
        Err(_) => println!("SKIPPED: there is no pkg-config"),
    }

    if Command::new("cmake").arg("--version").output().is_err() {
        println!("SKIPPED: there is no cmake");
        return;
    }
    std::fs::write(project.join("CMakeLists.txt"), PROJECT).expect("writable");
    let build = project.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&project).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    configure.arg(format!("-DCMAKE_CXX_COMPILER={compiler}"));
    succeed(&mut configure);
    succeed(Command::new("cmake").arg("--build").arg(&build));
    for program in ["types", "types-static"] {
        assert_kept(&build.join(program));
    }
    // Another series of versions has another interface.
    let other = PROJECT.replace("holdfast 0.1 ", "holdfast 0.2 ");
    std::fs::write(project.join("CMakeLists.txt"), other).expect("writable");
    let refused = Command::new("cmake")
        .arg("-S")
        .arg(&project)
        .arg("-B")
        .arg(&build)
        .output();
    assert!(
        !refused.expect("cmake is there").status.success(),
        "version 0.2 is found"
    );
}
