import {
  Check,
  Column,
  type DeepPartial,
  Entity,
  type EntityManager,
  PrimaryGeneratedColumn,
  type ValueTransformer,
} from 'typeorm'
import { UniqueTextEntity } from '../find-or-create/active-record'
import { findOrCreate } from '../find-or-create/find-or-create'
import { URL_CHECK } from '../sql/url-check'
import { UniqueText } from '../typeorm/decorator'
import { formatUrl, normalizeParts, parseUrl, pathComponent, pathComponentHash, splitUrl } from './url-parts'

type UrlClass<Entity extends Url> = (new () => Entity) & typeof Url

/** For conditions; rows are normalized as a whole. */
const lowerCased: ValueTransformer = {
  to: (value: unknown) => (typeof value === 'string' ? value.toLowerCase() : value),
  from: (value: unknown) => value,
}

/**
 * An http or https URL, unique at any length, in table `urls`. Put it among the entities of your DataSource and refer to
 * it by foreign keys: its id never changes, and a stored URL is immutable.
 *
 * Its parts are normalized as a URL by `parse`, `save`, `insert`, `upsert` and every operation of this package, however
 * they are spelled; a check refuses what raw SQL could write although no URL has it. Conditions of `find` compare with
 * what is stored: give them the parts that `parseUrl` returns.
 */
@Entity({ name: 'urls' })
@Check('url_parts_check', URL_CHECK)
@UniqueText({
  as: 'url',
  columns: ['path', { property: 'query', prefix: '?' }, { property: 'fragment', prefix: '#' }],
  scope: ['host', 'scheme', 'port'],
  immutable: true,
  indexName: 'url_unique_index',
  hidden: { hash: 'path_component_hash', number: 'hash_number', chained: 'hash_chained' },
  parse: splitUrl,
  normalizeValues: normalizeParts,
})
export class Url extends UniqueTextEntity {
  /** A bigint, which the driver returns as a string. */
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string

  /** `http` or `https`. */
  @Column({ type: 'varchar', length: 5, transformer: lowerCased })
  scheme!: string

  /** In lower case and ASCII; IPv6 in brackets. */
  @Column({ type: 'varchar', length: 256, transformer: lowerCased })
  host!: string

  /** 0 for the scheme's default. */
  @Column({ type: 'integer', default: 0 })
  port!: number

  /** Begins with `/`. */
  @Column({ type: 'text' })
  path!: string

  /** Without its `?`; `''` for `x?`, null where there is none. */
  @Column({ type: 'text', nullable: true })
  query!: string | null

  /** Without its `#`; `''` for `x#`, null where there is none. */
  @Column({ type: 'text', nullable: true })
  fragment!: string | null

  /**
   * Finds or creates the row of a URL.
   *
   * @param manager that of the caller's transaction. @default the entity's DataSource
   * @returns null for what is not an http or https URL with a host, and for URLs with user information or port 0
   * @throws as `findOrCreate` does
   * @example
   * const url = await Url.parse('HTTP://Example.com:80/a/../b?q#f')
   * String(url) // 'http://example.com/b?q#f'
   */
  static async parse<Entity extends Url>(
    this: UrlClass<Entity>,
    text: string | URL | null | undefined,
    manager: EntityManager = this.getRepository().manager,
  ): Promise<Entity | null> {
    const parts = parseUrl(text)
    if (parts === null) return null
    const { entity } = await findOrCreate<Entity>(manager, this, { ...parts } as DeepPartial<NoInfer<Entity>>)
    return entity
  }

  /**
   * Path, `?query` and `#fragment`: the text that is hashed.
   *
   * @throws DeclarationError if one of them was not selected
   */
  get pathComponent(): string {
    return pathComponent(this)
  }

  /**
   * MD5 of `pathComponent`, 32 hex digits.
   *
   * @throws DeclarationError if a part of it was not selected
   */
  get pathComponentHash(): string {
    return pathComponentHash(this)
  }

  /**
   * Returns the URL.
   *
   * @throws DeclarationError if a part of it was not selected
   */
  override toString(): string {
    return formatUrl(this)
  }
}
