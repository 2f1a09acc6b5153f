const bytewiseText = (column: string): string => `"${column}"::pg_catalog.text COLLATE pg_catalog."C"`
const textLiteral = (value: string): string => `'${value}'::pg_catalog.text`
const equalsText = (column: string, value: string): string =>
  `(${bytewiseText(column)} OPERATOR(pg_catalog.=) ${textLiteral(value)})`
const matchesPattern = (column: string, pattern: string): string =>
  `(${bytewiseText(column)} OPERATOR(pg_catalog.~) ${textLiteral(pattern)})`
const lacks = (column: string, pattern: string): string =>
  `(${bytewiseText(column)} OPERATOR(pg_catalog.!~) ${textLiteral(pattern)})`
const port = (operator: string, value: string): string => `("port" OPERATOR(pg_catalog.${operator}) ${value})`

/**
 * Percent-encoding with another spelling: digits in lower case, and unreserved characters. A hex digit stays encoded if
 * a `%` before it would otherwise become the beginning of another triplet.
 */
const TRIPLETS =
  '%([0-9A-F][a-f]|[a-f][0-9A-Fa-f]|2[DE]|[46][7-9A-F]|5[0-9AF]|7[0-9AE])|(?<!%[0-9A-Fa-f]?)%(3[0-9]|[46][1-6])'

/** A lookbehind is slow, and most texts have no `%`. */
const hasNormalTriplets = (column: string): string =>
  `((pg_catalog.strpos(${bytewiseText(column)}, ${textLiteral('%')}) OPERATOR(pg_catalog.=) 0) OR ${lacks(column, TRIPLETS)})`

const OCTET = '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
const GROUP = '(0|[1-9a-f][0-9a-f]{0,3})'
const GROUP_ABOVE_0 = '[1-9a-f][0-9a-f]{0,3}'

/** A host whose last label is a number is an IPv4 address, which has one spelling: `127.1` is `127.0.0.1`. */
const NUMBER_LAST = '(^|[.])([0-9]+|0x[0-9a-f]*)[.]?$'

/** Addresses that Postgres would print with dots. */
const IPV6_WITH_IPV4 = `^[[]::(${GROUP_ABOVE_0}|${GROUP_ABOVE_0}:${GROUP}|ffff:${GROUP}:${GROUP})[]]$`

/** The address is written as in Postgres: without leading zeros and without the first of the longest runs of zeros. */
const IPV6_SHORTEST = [
  `('['::pg_catalog.text OPERATOR(pg_catalog.||) pg_catalog.host(pg_catalog.btrim(${bytewiseText('host')},`,
  `'[]'::pg_catalog.text)::pg_catalog.inet) OPERATOR(pg_catalog.||) ']'::pg_catalog.text`,
  `OPERATOR(pg_catalog.=) ${bytewiseText('host')})`,
].join(' ')

/**
 * Refuses values that raw SQL could write into the columns of `Url` although no URL has them, so that one URL could be
 * in two rows. There is no backslash, because TypeORM does not escape them in the migrations that it generates. COLLATE
 * "C" is needed, because in other collations a range of characters is not a range.
 */
export const URL_CHECK: string = [
  `(${equalsText('scheme', 'http')} OR ${equalsText('scheme', 'https')})`,
  `CASE WHEN ${matchesPattern('host', '^([0-9a-z-]+[.])*[a-z][0-9a-z-]*$')} THEN true ` +
    `WHEN ${matchesPattern('host', '^[[][0-9a-f:]+[]]$')} THEN ${matchesPattern('host', IPV6_WITH_IPV4)} OR ${IPV6_SHORTEST} ` +
    `WHEN ${matchesPattern('host', NUMBER_LAST)} THEN ${matchesPattern('host', `^(${OCTET}[.]){3}${OCTET}$`)} ` +
    `ELSE ${matchesPattern('host', '^[!"&-.0-9;=_-z{}~$]+$')} END`,
  port('>=', '0'),
  port('<=', '65535'),
  port('<>', `CASE WHEN ${equalsText('scheme', 'https')} THEN 443 ELSE 80 END`),
  matchesPattern('path', '^/[]!$-;=@-[_a-z|~]*$'),
  lacks('path', '/[.][.]?(/|$)'),
  matchesPattern('query', '^[!$-&(-;=?-~]*$'),
  matchesPattern('fragment', '^[!#-;=?-_a-~]*$'),
  ...['path', 'query', 'fragment'].map(hasNormalTriplets),
].join(' AND ')
