"""SpiderCast's figures.  [SC §3]"""
