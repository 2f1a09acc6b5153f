SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."title" AS s2
  FROM "page" AS t
  WHERE t."urlHash" OPERATOR(pg_catalog.=) $2
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
  FOR SHARE;

SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number, t."id" AS s0
  FROM "My ""Schema"""."page" AS t
  WHERE t."site" OPERATOR(pg_catalog.=) $1
    AND t."urlHash" OPERATOR(pg_catalog.=) $4
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $2::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $2::pg_catalog.text IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $3::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $3::pg_catalog.text IS NULL)
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
  FOR SHARE;
