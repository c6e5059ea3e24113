//! JSON values with their paths, so that errors name the place. Other modules define the valid contents.

use serde_json::{Map, Value};

use super::BootstrapError;

/// A value and its path.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> At<'a> {
    /// Returns the whole document.
    pub fn root(value: &'a Value) -> At<'a> {
        At { path: String::new(), value }
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        if self.path.is_empty() { "the document" } else { &self.path }
    }

    /// Returns the value.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// Returns an error about this value.
    pub fn fault(&self, fault: impl Into<String>) -> BootstrapError {
        BootstrapError::Field { path: self.path().to_owned(), fault: fault.into() }
    }

    /// Returns an error about the field of this name, which may be missing.
    pub fn fault_of(&self, name: &str, fault: impl Into<String>) -> BootstrapError {
        BootstrapError::Field { path: self.path_of(name), fault: fault.into() }
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn is_no(&self, wanted: &str) -> BootstrapError {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.fault(format!("is {found}: make it {wanted}"))
    }

    /// Returns the fields of an object.
    ///
    /// # Errors
    /// The value is not an object.
    pub fn fields(&self) -> Result<&'a Map<String, Value>, BootstrapError> {
        self.value.as_object().ok_or_else(|| self.is_no("an object"))
    }

    /// Returns the field of this name; null counts as missing.
    ///
    /// # Errors
    /// The value is not an object.
    pub fn field(&self, name: &str) -> Result<Option<At<'a>>, BootstrapError> {
        let value = self.fields()?.get(name).filter(|value| !value.is_null());
        Ok(value.map(|value| At { path: self.path_of(name), value }))
    }

    /// Returns the field of this name.
    ///
    /// # Errors
    /// The value is not an object, or the field is missing, with this remedy.
    pub fn required(&self, name: &str, remedy: &str) -> Result<At<'a>, BootstrapError> {
        self.field(name)?.ok_or_else(|| self.fault_of(name, remedy))
    }

    /// Returns the items of a list.
    ///
    /// # Errors
    /// The value is not a list.
    pub fn items(&self) -> Result<Vec<At<'a>>, BootstrapError> {
        let items = self.value.as_array().ok_or_else(|| self.is_no("a list"))?;
        let item = |(n, value)| At { path: format!("{}[{n}]", self.path), value };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// Returns a string.
    ///
    /// # Errors
    /// The value is not a string.
    pub fn text(&self) -> Result<&'a str, BootstrapError> {
        self.value.as_str().ok_or_else(|| self.is_no("a string"))
    }

    /// Returns the string in the field of this name. An empty one counts as missing.
    ///
    /// # Errors
    /// The value is not an object, or the field is not a string.
    pub fn text_of(&self, name: &str) -> Result<Option<&'a str>, BootstrapError> {
        let text = self.field(name)?.map(|field| field.text()).transpose()?;
        Ok(text.filter(|text| !text.is_empty()))
    }
}
