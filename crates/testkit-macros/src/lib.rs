//! The attribute that registers a test with the runner `quire_testkit::harness`.
//!
//! Guarantees: the function stays as it is written, and is in the runner's list once, under its own name. Relies on the
//! crate of the test to depend on quire-testkit.
#![forbid(unsafe_code)]

use proc_macro::{TokenStream, TokenTree};

/// Registers a function without arguments and result as a test.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let name = name_of_function(item.clone()).filter(|_| arguments.is_empty());
    let Some(name) = name else {
        return "::core::compile_error!(\"#[test] is for functions and takes no arguments\");".parse().expect("tokens");
    };
    // A raw identifier is named without its prefix.
    let shown = name.trim_start_matches("r#");
    let registration = format!(
        "::quire_testkit::harness::inventory::submit! {{
            ::quire_testkit::harness::Registered {{
                module: ::core::module_path!(),
                name: \"{shown}\",
                test: {name},
            }}
        }}"
    );
    item.into_iter().chain(registration.parse::<TokenStream>().expect("tokens")).collect()
}

/// The identifier after the first `fn`.
fn name_of_function(item: TokenStream) -> Option<String> {
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let mut rest = item.into_iter().skip_while(|token| !is_fn(token));
    match rest.nth(1)? {
        TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    }
}
