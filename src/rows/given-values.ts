import type { DeepPartial } from 'typeorm'

/**
 * Values as an operation takes them: properties of the entity, and the text that `by` names. That no others are given is
 * checked of a variable too, where TypeScript lets more than a literal pass.
 *
 * @typeParam Given what the caller gives, inferred
 * @typeParam By the name that the option `by` has, inferred; string where it is left out or not known
 */
export type GivenValues<Entity, Given, By = string> = DeepPartial<Entity> &
  NoOthers<Entity, Given> &
  WithText<Entity, Given, By>

// `Given` stands in a branch so that it is inferred; where all is well, a literal is checked against the entity alone.
type NoOthers<Entity, Given> = keyof Given extends keyof Entity
  ? unknown
  : string extends keyof Given
    ? unknown
    : Given & { readonly [Name in Exclude<keyof Given, keyof Entity>]: NoPropertyOfTheEntity<Name> }

declare const misspelt: unique symbol

/** Nothing has this type: the compiler names it, and so the property. */
export interface NoPropertyOfTheEntity<Name> {
  readonly [misspelt]: Name
}

/** Which property is a unique text no type can tell, unless it is named. */
type WithText<Entity, Given, By> = string extends By | keyof Entity
  ? unknown
  : By extends keyof Given
    ? unknown
    : { readonly [Name in By & keyof Entity]: Entity[Name] }

/** Options whose `by` is inferred. */
export type Naming<By, Options> = Options & { readonly by?: By | undefined }
