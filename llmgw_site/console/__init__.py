"""Pages over several apps: overview, jobs, chat. Opened by `llmgw_site.urls` and the theme; they ask selectors for what
they show and services for what they change, and hold no rule of their own. They open no tables."""
