//! Text to rows: parse, bind, plan, optimize, execute.
