"""SGLang, as far as its command line goes."""
