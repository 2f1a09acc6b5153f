WITH found AS (
  SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0, t."title" AS s2,
    (t."title"::pg_catalog.text COLLATE "C"
        IS DISTINCT FROM ($3::character varying)::pg_catalog.text) AS changed
  FROM "page" AS t
  WHERE t."urlHash" = $2
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $1::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
  LIMIT 2
  FOR NO KEY UPDATE
), updated AS (
  UPDATE "page" AS t
  SET "title" = $3,
    "changed" = CURRENT_TIMESTAMP,
    "version" = t."version" + 1
  FROM (SELECT FROM found HAVING pg_catalog.count(*) = 1 AND pg_catalog.bool_and(changed)) AS f
  WHERE t."urlHash" = $2
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $1::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
    AND t."type"::pg_catalog.text IN ('it''s')
  RETURNING NULL::bool AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN t."url"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $1::pg_catalog.text
    THEN pg_catalog.json_build_array(t."url")::pg_catalog.text END AS other_texts, t."id" AS s0, t."title" AS s2
)
SELECT * FROM updated
UNION ALL
-- Locked, and yet not updated: it is as it should be, or a trigger of the table keeps it as it is.
SELECT created, hash_number, other_texts, s0, s2 FROM found WHERE NOT EXISTS (SELECT FROM updated);

WITH found AS (
  SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0,
    (t."title"::pg_catalog.text COLLATE "C"
        IS DISTINCT FROM ($5::character varying)::pg_catalog.text) AS changed
  FROM "My ""Schema"""."page" AS t
  WHERE t."site" OPERATOR(pg_catalog.=) pg_catalog.round($1::numeric, 2)
    AND t."urlHash" = $4
    AND t."path"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $2::pg_catalog.text
    AND t."query"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $3::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
  LIMIT 2
  FOR NO KEY UPDATE
), updated AS (
  UPDATE "My ""Schema"""."page" AS t
  SET "title" = $5,
    "changed" = CURRENT_TIMESTAMP,
    "version" = t."version" + 1
  FROM (SELECT FROM found HAVING pg_catalog.count(*) = 1 AND pg_catalog.bool_and(changed)) AS f
  WHERE t."site" OPERATOR(pg_catalog.=) pg_catalog.round($1::numeric, 2)
    AND t."urlHash" = $4
    AND t."path"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $2::pg_catalog.text
    AND t."query"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $3::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
    AND t."type"::pg_catalog.text IN ('it''s')
  RETURNING NULL::bool AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN t."path"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $3::pg_catalog.text
    THEN pg_catalog.json_build_array(t."path", t."query")::pg_catalog.text END AS other_texts, t."id" AS s0
)
SELECT * FROM updated
UNION ALL
-- Locked, and yet not updated: it is as it should be, or a trigger of the table keeps it as it is.
SELECT created, hash_number, other_texts, s0 FROM found WHERE NOT EXISTS (SELECT FROM updated);
