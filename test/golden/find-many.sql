WITH input AS MATERIALIZED (
  SELECT i.ordinal, i.c0 AS c0, i.c1::uuid AS c1
  FROM unnest($1::text[], $2::text[])
    WITH ORDINALITY AS i (c0, c1, ordinal)
)
  SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."title" AS s2
    FROM "page" AS t
    WHERE t."urlHash" = i.c1
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM i.c0::pg_catalog.text
      AND t."urlHash" BETWEEN i.c1 AND i.c1
      AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
    LIMIT 2
  ) AS t;

WITH input AS MATERIALIZED (
  SELECT i.ordinal, pg_catalog.round(i.c0::numeric, 2) AS c0, i.c1 AS c1, i.c2 AS c2, i.c3::uuid AS c3
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
    WITH ORDINALITY AS i (c0, c1, c2, c3, ordinal)
)
  SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number, t."id" AS s0
    FROM "My ""Schema"""."page" AS t
    WHERE t."site" OPERATOR(pg_catalog.=) i.c0
    AND t."urlHash" = i.c3
    AND t."path"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM i.c1::pg_catalog.text
    AND t."query"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM i.c2::pg_catalog.text
      AND t."urlHash" BETWEEN i.c3 AND i.c3
      AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
    LIMIT 2
  ) AS t;
