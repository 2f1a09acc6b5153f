import type { ColumnOptions, ColumnType, EntityOptions, RelationOptions } from 'typeorm'
import {
  Column,
  CreateDateColumn,
  DeleteDateColumn,
  Entity,
  JoinTable,
  ManyToMany,
  ManyToOne,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  UpdateDateColumn,
  VersionColumn,
} from 'typeorm'
import { UniqueText, type UniqueTextPropertyOptions } from '../../src'
import { UniqueName, type UniqueNameOptions } from '../../src/names'
import { NumberWithin, type NumberWithinOptions } from '../../src/numbers'

/** A decorator of a property. */
export type Declaration = (target: object, property: string) => void
/** The same, and the type that the property has. */
type Field<Type> = Declaration & { readonly type?: Type }
type Key<Type> = Field<Type> & { readonly isKey: true }
type Fields = Readonly<Record<string, Field<unknown>>>
type Class<Row> = new () => Row

type RowOf<Given extends Fields> = {
  -readonly [Name in keyof Given]: Given[Name] extends Field<infer Type> ? Type : never
} & (Extract<Given[keyof Given], Key<unknown>> extends never ? { id: number } : unknown)

/**
 * An entity in one line: `const Page = entity('Page', { url: text(), title: plain() })` is what a class with `@Entity()`,
 * `@UniqueText()` and `@Column()` would be. Its key is an identity `id`, unless a field is a key. Write a class where the
 * decorators are tested, and for listeners and inheritance.
 */
export function entity<const Given extends Fields>(
  name: string,
  fields: Given,
  options: EntityOptions = {},
): Class<RowOf<Given>> {
  // oxlint-disable-next-line typescript/no-extraneous-class
  const made = { [name]: class {} }[name] as Class<RowOf<Given>>
  const hasKey = Object.values(fields).some((field) => 'isKey' in field)
  for (const [property, declare] of Object.entries(hasKey ? fields : { id: identity(), ...fields })) {
    declare(made.prototype as object, property)
  }
  Entity(options)(made)
  return made
}

/** The class with decorators of its own: `declared(entity('Post', { … }), Unique(['slug']))`. */
export function declared<Given extends Class<object>>(
  made: Given,
  ...declarations: readonly ((target: Given) => void)[]
): Given {
  for (const declare of declarations) declare(made)
  return made
}

/** Several decorators of one property, in the order in which they would be written above it. */
export const together =
  (...declarations: readonly Declaration[]): Declaration =>
  (target, property) => {
    for (const declare of declarations.toReversed()) declare(target, property)
  }

interface Types {
  bigint: string
  boolean: boolean
  bytea: Buffer
  integer: number
  json: unknown
  jsonb: unknown
  numeric: string
  smallint: number
  text: string
  timestamptz: Date
  uuid: string
  varchar: string
}
type Null<Options> = Options extends { readonly nullable: true } ? null : never

/** `@UniqueText()`. */
export const text = <const Options extends UniqueTextPropertyOptions>(
  options?: Options,
): Field<string | Null<Options>> => UniqueText(options)

/** A text that is not unique, and may be null. */
export const plain = (): Field<string | null> => Column({ type: 'text', nullable: true })

export const column = <Type extends keyof Types & ColumnType, const Options extends ColumnOptions>(
  type: Type,
  options?: Options,
): Field<Types[Type] | Null<Options>> => Column({ ...options, type })

const keyed = <Type>(declare: Field<Type>): Key<Type> => Object.assign(declare, { isKey: true } as const)

const identity = (): Key<number> => keyed(PrimaryGeneratedColumn('identity', { type: 'integer' }))

/** A key that the server does not generate. */
export const key = <Type extends keyof Types & ColumnType>(type: Type): Key<Types[Type]> =>
  keyed(PrimaryColumn({ type }))

export const bigintKey = (): Key<string> => keyed(PrimaryGeneratedColumn('identity', { type: 'bigint' }))

export const uuidKey = (): Key<string> => keyed(PrimaryGeneratedColumn('uuid'))

export const createDate = (): Field<Date> => CreateDateColumn({ type: 'timestamptz' })
export const updateDate = (): Field<Date> => UpdateDateColumn({ type: 'timestamptz' })
export const deleteDate = (): Field<Date | null> => DeleteDateColumn({ type: 'timestamptz' })
export const version = (): Field<number> => VersionColumn()

/** `@Column(() => Class)`. */
export const embedded = <Row>(of: () => Class<Row>): Field<Row> => Column(of)

/** `@ManyToOne()`. */
export const toOne = <Row, const Options extends RelationOptions>(
  of: () => Class<Row>,
  options?: Options,
): Field<Row | (Options extends { readonly nullable: false } ? never : null)> => ManyToOne(of, options ?? {})

/** `@ManyToMany() @JoinTable()`. */
export const toMany =
  <Row extends object>(of: () => Class<Row>, options: RelationOptions = {}): Field<Row[]> =>
  (target, property) => {
    ManyToMany(of, options)(target, property)
    JoinTable()(target, property)
  }

/** `@UniqueName()`. */
export const uniqueName = <const Options extends UniqueNameOptions>(options: Options): Field<string | Null<Options>> =>
  UniqueName(options)

/** `@NumberWithin()`. */
export const numberWithin = (options?: NumberWithinOptions): Field<number> => NumberWithin(options)
