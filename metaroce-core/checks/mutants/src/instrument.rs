//! Puts mutants into a source file.

use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Arm, Attribute, BinOp, Block, Expr, ExprRepeat, ImplItemConst, ImplItemFn, ItemConst, ItemFn, ItemMod,
    ItemStatic, Pat, ReturnType, Signature, Type, UnOp, parse_quote,
};

/// One change.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// From 1; what `MUTANT` names.
    pub number: u32,
    /// File, relative to the crate's sources.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The function that it is in.
    pub function: String,
    /// What is changed into what.
    pub what: String,
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}\t{}\t{}", self.file, self.line, self.function, self.what)
    }
}

/// The file with all its mutants, which are added to `mutants`.
pub fn instrument(file: &str, text: &str, mutants: &mut Vec<Mutant>) -> anyhow::Result<String> {
    let mut syntax = syn::parse_file(text)?;
    let mut visitor = Visitor { file, function: String::new(), mutants };
    visitor.visit_file_mut(&mut syntax);
    Ok(syntax.into_token_stream().to_string())
}

struct Visitor<'a> {
    file: &'a str,
    function: String,
    mutants: &'a mut Vec<Mutant>,
}

impl Visitor<'_> {
    fn add(&mut self, line: usize, what: String) -> u32 {
        let number = u32::try_from(self.mutants.len() + 1).unwrap_or(u32::MAX);
        let (file, function) = (self.file.to_owned(), self.function.clone());
        self.mutants.push(Mutant { number, file, line, function, what });
        number
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &mut Block) {
        if signature.constness.is_some() || is_test(attributes) || signature.ident == "fmt" {
            return;
        }
        let outer = std::mem::replace(&mut self.function, signature.ident.to_string());
        visit_mut::visit_block_mut(self, block);
        let line = signature.ident.span().start().line;
        let empty = block.stmts.is_empty();
        for (value, name) in values(&signature.output) {
            if empty {
                break;
            }
            let number = self.add(line, format!("replace {} with {name}", signature.ident));
            block
                .stmts
                .insert(0, parse_quote! { if crate::mutant_switch::mutant(#number) { return #value; } });
        }
        self.function = outer;
    }

    fn binary(&mut self, expression: &mut Expr, original: Expr) {
        let Expr::Binary(whole) = original else { return };
        if has_let(&whole.left) || has_let(&whole.right) {
            return;
        }
        let (left, right) = (&whole.left, &whole.right);
        let line = whole.op.span().start().line;
        let name = whole.op.to_token_stream().to_string();
        for other in others(&whole.op) {
            let number = self.add(line, format!("replace {name} with {}", other.to_token_stream()));
            let rest = expression.clone();
            *expression = parse_quote! {
                (if crate::mutant_switch::mutant(#number) { (#left) #other (#right) } else { #rest })
            };
        }
    }

    fn arm(&mut self, arm: &mut Arm, wildcard: bool) {
        let line = arm.pat.span().start().line;
        let pattern = arm.pat.to_token_stream().to_string();
        let mut guard = arm.guard.take().map(|(_, guard)| *guard);
        if let Some(expression) = guard.take() {
            guard = Some(if has_let(&expression) {
                expression
            } else {
                let yes = self.add(line, format!("replace the guard of {pattern} with true"));
                let no = self.add(line, format!("replace the guard of {pattern} with false"));
                parse_quote! {
                    (crate::mutant_switch::mutant(#yes) || (#expression)) && !crate::mutant_switch::mutant(#no)
                }
            });
        } else if wildcard && !matches!(arm.pat, Pat::Wild(_)) {
            let number = self.add(line, format!("delete the arm {pattern}"));
            guard = Some(parse_quote! { !crate::mutant_switch::mutant(#number) });
        }
        arm.guard = guard.map(|guard| (syn::token::If::default(), Box::new(guard)));
    }
}

impl VisitMut for Visitor<'_> {
    fn visit_item_fn_mut(&mut self, item: &mut ItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut ImplItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_item_mod_mut(&mut self, item: &mut ItemMod) {
        if !is_test(&item.attrs) {
            visit_mut::visit_item_mod_mut(self, item);
        }
    }

    // Where no function can be called.
    fn visit_item_const_mut(&mut self, _: &mut ItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut ItemStatic) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut ImplItemConst) {}
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_generic_argument_mut(&mut self, _: &mut syn::GenericArgument) {}

    fn visit_expr_repeat_mut(&mut self, item: &mut ExprRepeat) {
        self.visit_expr_mut(&mut item.expr);
    }

    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        if matches!(expression, Expr::Const(_)) {
            return;
        }
        let original = expression.clone();
        visit_mut::visit_expr_mut(self, expression);
        match expression {
            Expr::Binary(_) => self.binary(expression, original),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let inner = &unary.expr;
                let line = unary.op.span().start().line;
                let number = self.add(line, "delete !".to_owned());
                let Expr::Unary(whole) = original else { return };
                let plain = &whole.expr;
                *expression = parse_quote! {
                    (if crate::mutant_switch::mutant(#number) { !(!(#plain)) } else { !(#inner) })
                };
            }
            Expr::Match(whole) => {
                let wildcard =
                    whole.arms.iter().any(|arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none());
                for arm in &mut whole.arms {
                    self.arm(arm, wildcard);
                }
            }
            _ => {}
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string();
        text.contains("cfg (test)") || text == "# [test]"
    })
}

/// Whether a `let` is in the chain of an expression: `&&` can't become `||` there.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

fn others(op: &BinOp) -> Vec<BinOp> {
    match op {
        BinOp::Eq(_) => vec![parse_quote!(!=)],
        BinOp::Ne(_) => vec![parse_quote!(==)],
        BinOp::Lt(_) => vec![parse_quote!(==), parse_quote!(>), parse_quote!(<=)],
        BinOp::Gt(_) => vec![parse_quote!(==), parse_quote!(<), parse_quote!(>=)],
        BinOp::Le(_) => vec![parse_quote!(>)],
        BinOp::Ge(_) => vec![parse_quote!(<)],
        BinOp::And(_) => vec![parse_quote!(||)],
        BinOp::Or(_) => vec![parse_quote!(&&)],
        BinOp::Add(_) => vec![parse_quote!(-), parse_quote!(*)],
        BinOp::Sub(_) => vec![parse_quote!(+), parse_quote!(/)],
        BinOp::Mul(_) => vec![parse_quote!(+), parse_quote!(/)],
        BinOp::Div(_) => vec![parse_quote!(%), parse_quote!(*)],
        BinOp::Rem(_) => vec![parse_quote!(/), parse_quote!(+)],
        BinOp::BitAnd(_) => vec![parse_quote!(|), parse_quote!(^)],
        BinOp::BitOr(_) => vec![parse_quote!(&), parse_quote!(^)],
        BinOp::BitXor(_) => vec![parse_quote!(|), parse_quote!(&)],
        BinOp::Shl(_) => vec![parse_quote!(>>)],
        BinOp::Shr(_) => vec![parse_quote!(<<)],
        BinOp::AddAssign(_) => vec![parse_quote!(-=), parse_quote!(*=)],
        BinOp::SubAssign(_) => vec![parse_quote!(+=), parse_quote!(/=)],
        BinOp::BitAndAssign(_) => vec![parse_quote!(|=)],
        BinOp::BitOrAssign(_) => vec![parse_quote!(&=)],
        _ => Vec::new(),
    }
}

/// Values of a return type to try in the place of a function's body.
fn values(output: &ReturnType) -> Vec<(proc_macro2::TokenStream, &'static str)> {
    let ReturnType::Type(_, kind) = output else { return vec![(quote!(()), "()")] };
    match kind.to_token_stream().to_string().as_str() {
        "bool" => vec![(quote!(true), "true"), (quote!(false), "false")],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => vec![(quote!(0), "0"), (quote!(1), "1")],
        "Instant" => vec![(quote!(Default::default()), "Default::default()")],
        text if text.starts_with("Option <") => vec![(quote!(None), "None")],
        text if text.starts_with("Result < ()") => vec![(quote!(Ok(())), "Ok(())")],
        _ => Vec::new(),
    }
}
