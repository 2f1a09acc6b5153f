SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."title" AS s2
  FROM "page" AS t
  WHERE t."urlHash" = $2
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $1::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
  FOR SHARE;

SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number, t."id" AS s0
  FROM "My ""Schema"""."page" AS t
  WHERE t."site" OPERATOR(pg_catalog.=) $1
    AND t."urlHash" = $4
    AND t."path"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $2::pg_catalog.text
    AND t."query"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $3::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
  FOR SHARE;
