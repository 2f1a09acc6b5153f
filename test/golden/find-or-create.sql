WITH found AS (
  SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0, t."title" AS s2
  FROM "page" AS t
  WHERE t."urlHash" = $2
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $1::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
), created AS (
  INSERT INTO "page" AS t ("url", "urlHash", "title")
  SELECT $1, $2, $3
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT DO NOTHING
  RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN t."url"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $1::pg_catalog.text
    THEN pg_catalog.json_build_array(t."url")::pg_catalog.text END AS other_texts, t."id" AS s0, t."title" AS s2
)
SELECT * FROM found
UNION ALL
SELECT * FROM created;

WITH found AS (
  SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0
  FROM "My ""Schema"""."page" AS t
  WHERE t."site" OPERATOR(pg_catalog.=) $1
    AND t."urlHash" = $4
    AND t."path"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $2::pg_catalog.text
    AND t."query"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $3::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
), created AS (
  INSERT INTO "My ""Schema"""."page" AS t ("site", "path", "query", "urlHash")
  SELECT $1, $2, $3, $4
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT DO NOTHING
  RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN t."path"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $3::pg_catalog.text
    THEN pg_catalog.json_build_array(t."path", t."query")::pg_catalog.text END AS other_texts, t."id" AS s0
)
SELECT * FROM found
UNION ALL
SELECT * FROM created;
