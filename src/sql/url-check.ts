/**
 * What raw SQL could write into the columns of `Url` although no URL has it. No backslash: TypeORM does not escape them
 * in the migrations it generates. COLLATE "C", for a range of characters is none in other collations.
 */
export const URL_CHECK: string = [
  `"scheme" IN ('http', 'https')`,
  `"host" COLLATE "C" ~ '^([[][0-9a-f:.]+[]]|[!"&-.0-9;=_-z{}~$]+)$'`,
  `"port" BETWEEN 0 AND 65535`,
  `"port" <> CASE "scheme" WHEN 'https' THEN 443 ELSE 80 END`,
  `pg_catalog.starts_with("path", '/')`,
  `pg_catalog.strpos("path", '?') = 0`,
  `pg_catalog.strpos("path", '#') = 0`,
  `pg_catalog.strpos(coalesce("query", ''), '#') = 0`,
].join(' AND ')
