WITH i0 AS MATERIALIZED (
  SELECT i.ordinal, i.c0 AS c0
  FROM pg_catalog.unnest($1::pg_catalog.text[])
    WITH ORDINALITY AS i (c0, ordinal)
), i1 AS MATERIALIZED (
  SELECT i.ordinal, i.c0 AS c0
  FROM pg_catalog.unnest($2::pg_catalog.text[])
    WITH ORDINALITY AS i (c0, ordinal)
)
SELECT 0 AS wanted, i.ordinal,
  CASE WHEN i.ordinal OPERATOR(pg_catalog.>) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY i.c0 COLLATE pg_catalog."C") THEN 1 END AS repeated,
  h.deleted, h.k0 AS p0, NULL::pg_catalog.text AS p1
FROM i0 AS i
CROSS JOIN LATERAL (SELECT i.c0 AS "url") AS n
LEFT JOIN LATERAL (
  SELECT t."id" AS k0, NULL::pg_catalog.int4 AS deleted
  FROM "page" AS t
  WHERE t."urlHash" OPERATOR(pg_catalog.=)
      pg_catalog.md5(pg_catalog.substr(n."url"::pg_catalog.text, 1, 1))::pg_catalog.uuid
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n."url"::pg_catalog.text
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
  LIMIT 1
) AS h ON true
WHERE NOT (n."url" IS NULL)
UNION ALL
SELECT 1 AS wanted, i.ordinal,
  CASE WHEN i.ordinal OPERATOR(pg_catalog.>) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY i.c0 COLLATE pg_catalog."C") THEN 1 END AS repeated,
  h.deleted, NULL::pg_catalog.text AS p0, h.k0 AS p1
FROM i1 AS i
CROSS JOIN LATERAL (SELECT i.c0 AS "url") AS n
LEFT JOIN LATERAL (
  SELECT t."id" AS k0, NULL::pg_catalog.int4 AS deleted
  FROM "page" AS t
  WHERE t."urlHash" OPERATOR(pg_catalog.=)
      pg_catalog.md5(pg_catalog.substr(n."url"::pg_catalog.text, 1, 1))::pg_catalog.uuid
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n."url"::pg_catalog.text
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
  LIMIT 1
) AS h ON true
WHERE NOT (n."url" IS NULL);

WITH i0 AS MATERIALIZED (
  SELECT i.ordinal, pg_catalog.round(i.c0::numeric, 2) AS c0,
    i.c1 AS c1,
    i.c2 AS c2
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
    pg_catalog.unnest($3::pg_catalog.text[]))
    WITH ORDINALITY AS i (c0, c1, c2, ordinal)
), i1 AS MATERIALIZED (
  SELECT i.ordinal, pg_catalog.round(i.c0::numeric, 2) AS c0,
    i.c1 AS c1,
    i.c2 AS c2
  FROM ROWS FROM (pg_catalog.unnest($4::pg_catalog.text[]), pg_catalog.unnest($5::pg_catalog.text[]),
    pg_catalog.unnest($6::pg_catalog.text[]))
    WITH ORDINALITY AS i (c0, c1, c2, ordinal)
)
SELECT 0 AS wanted, i.ordinal,
  CASE WHEN i.ordinal OPERATOR(pg_catalog.>) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY i.c0, i.c1 COLLATE pg_catalog."C", i.c2 COLLATE pg_catalog."C") THEN 1 END AS repeated,
  h.deleted, h.k0 AS p0, NULL::pg_catalog.text AS p1
FROM i0 AS i
CROSS JOIN LATERAL (SELECT i.c0 AS "site", i.c1 AS "path", i.c2 AS "query") AS n
LEFT JOIN LATERAL (
  SELECT t."id" AS k0, NULL::pg_catalog.int4 AS deleted
  FROM "My ""Schema"""."page" AS t
  WHERE t."site" OPERATOR(pg_catalog.=) n."site"
    AND t."urlHash" OPERATOR(pg_catalog.=)
      pg_catalog.md5(pg_catalog.substr(coalesce(n."path"::pg_catalog.text, '') OPERATOR(pg_catalog.||)
    coalesce('?' OPERATOR(pg_catalog.||) n."query"::pg_catalog.text, ''), 1, 1))::pg_catalog.uuid
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n."path"::pg_catalog.text
      OR t."path" IS NULL AND n."path" IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n."query"::pg_catalog.text
      OR t."query" IS NULL AND n."query" IS NULL)
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
  LIMIT 1
) AS h ON true
WHERE NOT (n."path" IS NULL AND n."query" IS NULL)
UNION ALL
SELECT 1 AS wanted, i.ordinal,
  CASE WHEN i.ordinal OPERATOR(pg_catalog.>) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY i.c0, i.c1 COLLATE pg_catalog."C", i.c2 COLLATE pg_catalog."C") THEN 1 END AS repeated,
  h.deleted, NULL::pg_catalog.text AS p0, h.k0 AS p1
FROM i1 AS i
CROSS JOIN LATERAL (SELECT i.c0 AS "site", i.c1 AS "path", i.c2 AS "query") AS n
LEFT JOIN LATERAL (
  SELECT t."id" AS k0, NULL::pg_catalog.int4 AS deleted
  FROM "My ""Schema"""."page" AS t
  WHERE t."site" OPERATOR(pg_catalog.=) n."site"
    AND t."urlHash" OPERATOR(pg_catalog.=)
      pg_catalog.md5(pg_catalog.substr(coalesce(n."path"::pg_catalog.text, '') OPERATOR(pg_catalog.||)
    coalesce('?' OPERATOR(pg_catalog.||) n."query"::pg_catalog.text, ''), 1, 1))::pg_catalog.uuid
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n."path"::pg_catalog.text
      OR t."path" IS NULL AND n."path" IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n."query"::pg_catalog.text
      OR t."query" IS NULL AND n."query" IS NULL)
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
  LIMIT 1
) AS h ON true
WHERE NOT (n."path" IS NULL AND n."query" IS NULL);
